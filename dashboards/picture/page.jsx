// The panels of a dashboard, drawn with Grafana's own components from the answers that run.py has kept.
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import {
  FieldType, ThemeContext, createTheme, dateTime, getDisplayProcessor, toDataFrame,
} from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import data from './data.json';

const theme = createTheme({ colors: { mode: 'dark' } });
const WIDTH = 1560, CELL = WIDTH / 24, LINE = 30, GAP = 8, HEADER = 48;
const range = { from: dateTime(data.from), to: dateTime(data.to), raw: { from: dateTime(data.from), to: dateTime(data.to) } };

const legend = (target, labels) => target.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, name) => labels[name] ?? '').trim();

function field(panel, name, values, seriesIndex) {
  const { defaults, overrides } = panel.fieldConfig;
  const found = overrides.find(one => one.matcher.options === name);
  const color = found?.properties.find(one => one.id === 'color')?.value;
  const config = { ...defaults, displayName: name, color: color ?? defaults.color };
  const made = { name, type: FieldType.number, values, config, state: { seriesIndex } };
  made.display = getDisplayProcessor({ field: made, theme });
  return made;
}

// Prometheus leaves out what is not there; bars then need their zero, lines a gap.
function frames(panel) {
  let seriesIndex = 0;
  return panel.targets.flatMap((target, at) => data.answers[panel.id][at].map(series => {
    const values = new Map(series.values.map(([time, value]) => [time * 1000, Number(value)]));
    const times = [];
    const first = series.values[0][0] * 1000, step = 5000;
    for (let time = first - Math.floor((first - data.from) / step) * step; time <= data.to; time += step) times.push(time);
    const shown = times.map(time => values.get(time) ?? null);
    const value = field(panel, legend(target, series.metric), shown, seriesIndex++);
    const frame = toDataFrame({ fields: [{ name: 'time', type: FieldType.time, values: times, config: {} }, value] });
    Object.assign(frame.fields[1], { state: value.state, display: value.display });
    return frame;
  }));
}

function now(panel) {
  return data.answers[panel.id][0].map((one, at) => field(panel, legend(panel.targets[0], one.metric), [Number(one.value[1])], at));
}

const VIEWS = {
  stat(panel, width, height) {
    const [found] = now(panel);
    const display = getDisplayProcessor({ field: { type: FieldType.number, config: panel.fieldConfig.defaults }, theme });
    const value = display(found ? found.values[0] : null);
    return <BigValue value={value} width={width} height={height} theme={theme} colorMode="value" graphMode="none" textMode="value" />;
  },
  timeseries(panel, width, height) {
    const legend = { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] };
    return <TimeSeries frames={frames(panel)} timeRange={range} timeZone="utc" width={width} height={height} legend={legend} />;
  },
  bargauge(panel, width, height) {
    const fields = now(panel).sort((one, other) => other.values[0] - one.values[0]);
    const max = Math.max(...fields.map(one => one.values[0]));
    const each = Math.min(46, Math.floor(height / fields.length));
    return fields.map(one => {
      one.config = { ...one.config, max };
      one.display = getDisplayProcessor({ field: { ...one, state: { ...one.state, range: { min: 0, max, delta: max } } }, theme });
      return <div key={one.name} style={{ height: each }}>
        <BarGauge field={one.config} value={{ ...one.display(one.values[0]), title: one.name }} display={one.display} theme={theme}
          width={width} height={each - 8} orientation="horizontal" displayMode="basic" showUnfilled
          text={panel.options.text} alignmentFactors={{
            title: fields.map(f => f.name).reduce((a, b) => (a.length > b.length ? a : b)), text: '888' }} />
      </div>;
    });
  },
};

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const style = { position: 'absolute', left: x * CELL + GAP, top: HEADER + y * LINE + GAP, width: w * CELL - GAP, height: h * LINE - GAP };
  if (panel.type === 'row') return <div style={{ ...style, color: theme.colors.text.primary, fontWeight: 500, paddingTop: 2 }}>{panel.title}</div>;
  return <div style={style}>
    <PanelChrome title={panel.title} width={style.width} height={style.height} padding="md">
      {(width, height) => VIEWS[panel.type](panel, width, height)}
    </PanelChrome>
  </div>;
}

const drawn = data.dashboard.panels.filter(panel => panel.type === 'row' ? panel.title !== 'Latest' : data.answers[panel.id]);
const bottom = Math.max(...drawn.map(panel => panel.gridPos.y + panel.gridPos.h)) * LINE + GAP + HEADER;
createRoot(document.getElementById('page')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ position: 'relative', width: WIDTH + GAP, height: bottom, background: theme.colors.background.canvas }}>
      <div style={{ padding: '16px 12px', fontSize: 20, fontWeight: 500, color: theme.colors.text.primary }}>{data.dashboard.title}</div>
      {drawn.map(panel => <Panel key={panel.id} panel={panel} />)}
    </div>
  </ThemeContext.Provider>,
);
