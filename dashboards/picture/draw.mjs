// node draw.mjs data.json picture.png: bundle the page with the data and have Chromium take its picture.
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { build } from 'esbuild';

const [data, picture] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'picture-'));
copyFileSync(data, 'data.json');
await build({
  entryPoints: ['page.jsx'], bundle: true, minify: true, outfile: join(folder, 'page.js'), jsx: 'automatic', logLevel: 'error',
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  loader: { '.woff2': 'dataurl', '.woff': 'dataurl', '.ttf': 'empty', '.svg': 'dataurl' },
});
writeFileSync(join(folder, 'index.html'),
  '<!doctype html><meta charset=utf-8><link rel=stylesheet href=page.css><body style="margin:0;overflow:hidden"><div id=page></div><script src=page.js></script>');
const panels = JSON.parse(readFileSync('data.json')).dashboard.panels.filter(one => one.title !== 'Latest' && one.type !== 'table');
const height = Math.max(...panels.map(one => one.gridPos.y + one.gridPos.h)) * 30 + 8 + 48;
execFileSync('chromium', [
  '--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--force-device-scale-factor=1.5', '--virtual-time-budget=8000',
  `--window-size=1568,${height}`, `--screenshot=${resolve(picture)}`, `file://${folder}/index.html`,
], { stdio: 'ignore', timeout: 120_000 });
