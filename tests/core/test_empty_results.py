"""Results of a search that found nothing, by service, and objects with an empty list that say something else."""

from __future__ import annotations

import json

import pytest

from tests.core.test_lists_and_limits import nudged, steps
from tests.helpers import evaluate
from trajectory_guard.core.content.outcome import is_empty_result

NOTHING = {
    'elastic': '{"took": 39, "hits": {"total": {"value": 0, "relation": "eq"}, "hits": []}}',
    'elastic full': '{"took": 3, "timed_out": false, "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0}, "hits": {"total": {"value": 0, "relation": "eq"}, "max_score": null, "hits": []}}',
    'elastic 6': '{"took": 3, "timed_out": false, "_shards": {"total": 5, "successful": 5, "skipped": 0, "failed": 0}, "hits": {"total": 0, "max_score": null, "hits": []}}',
    'algolia': '{"hits": [], "nbHits": 0, "page": 0, "nbPages": 0, "hitsPerPage": 20, "exhaustiveNbHits": true, "query": "red lamp", "params": "query=red+lamp", "processingTimeMS": 1}',
    'typesense': '{"facet_counts": [], "found": 0, "hits": [], "out_of": 1023, "page": 1, "request_params": {"collection_name": "docs", "per_page": 10, "q": "red"}, "search_cutoff": false, "search_time_ms": 0}',
    'solr': '{"responseHeader": {"status": 0, "QTime": 1, "params": {"q": "red"}}, "response": {"numFound": 0, "start": 0, "docs": []}}',
    'meili': '{"hits": [], "query": "red", "processingTimeMs": 0, "limit": 20, "offset": 0, "estimatedTotalHits": 0}',
    'github': '{"total_count": 0, "incomplete_results": false, "items": []}',
    'notion': '{"object": "list", "results": [], "next_cursor": null, "has_more": false, "type": "page_or_database", "page_or_database": {}}',
    'pinecone': '{"matches": [], "namespace": "docs", "usage": {"readUnits": 1}}',
    'qdrant': '{"result": [], "status": "ok", "time": 0.0001}',
    'chroma': '{"ids": [[]], "distances": [[]], "metadatas": [[]], "embeddings": null, "documents": [[]]}',
    'stripe': '{"object": "list", "data": [], "has_more": false, "url": "/v1/charges"}',
    'jira': '{"startAt": 0, "maxResults": 50, "total": 0, "issues": []}',
    'graphql': '{"data": {"orders": {"nodes": [], "pageInfo": {"hasNextPage": false, "endCursor": null}}}}',
    'graphql edges': '{"data": {"search": {"issueCount": 0, "edges": []}}}',
    'microsoft graph': '{"@odata.context": "https://graph.microsoft.com/v1.0/$metadata#users", "value": []}',
    'kubernetes': '{"apiVersion": "v1", "items": [], "kind": "List", "metadata": {"resourceVersion": ""}}',
    'slack': '{"ok": true, "query": "x", "messages": {"total": 0, "pagination": {"total_count": 0, "page": 1, "per_page": 20, "page_count": 0, "first": 1, "last": 0}, "paging": {"count": 20, "total": 0, "page": 1, "pages": 0}, "matches": []}}',
    'tavily': '{"query": "x", "follow_up_questions": null, "answer": null, "images": [], "results": [], "response_time": 0.8}',
    'brave': '{"type": "search", "query": {"original": "x"}, "web": {"type": "search", "results": []}}',
    'arxiv-like': '{"totalResults": 0, "startIndex": 0, "itemsPerPage": 10, "entries": []}',
    'salesforce': '{"totalSize": 0, "done": true, "records": []}',
    'hubspot': '{"total": 0, "results": []}',
    'sharepoint': '{"value": [], "@odata.count": 0}',
    'loki': '{"status": "success", "data": {"resultType": "streams", "result": [], "stats": {"summary": {"totalBytes": 0}}}}',
    'prometheus': '{"status": "success", "data": {"resultType": "vector", "result": []}}',
    'opensearch aws': '{"took": 1, "timed_out": false, "_shards": {"total": 0, "successful": 0, "skipped": 0, "failed": 0}, "hits": {"total": {"value": 0, "relation": "eq"}, "max_score": 0.0, "hits": []}}',
    'mongo': '{"cursor": {"firstBatch": [], "id": 0, "ns": "shop.orders"}, "ok": 1}',
    'dynamo': '{"Items": [], "Count": 0, "ScannedCount": 0}',
    'bigquery': '{"kind": "bigquery#queryResponse", "jobComplete": true, "totalRows": "0", "rows": []}',
    'zendesk': '{"results": [], "facets": null, "next_page": null, "previous_page": null, "count": 0}',
    'wikipedia': '{"batchcomplete": "", "query": {"searchinfo": {"totalhits": 0}, "search": []}}',
    'mcp': '{"content": [], "isError": false}',
    'telegram': '{"ok": true, "result": []}',
    'sparql': '{"head": {"vars": ["x", "label"]}, "results": {"bindings": []}}',
    'rows beside columns': '{"columns": ["id", "title"], "rows": [], "elapsed": 0.4}',
    'sources': '{"answer": null, "sources": [], "latency": 1.4}',
    'Chinese': '{"状态": "成功", "结果": [], "总数": 0, "耗时": 12}',
    'Japanese': '{"件数": 0, "結果": [], "処理時間ms": 9}',
    'German': '{"status": "ok", "treffer": [], "dauer": 12}',
}  # fmt: skip
"""In the forms that the public references of their APIs give."""
SOMETHING = {
    'deleted': '{"files": [], "counts": {"deleted": 3}}',
    'lint': '{"errors": [], "failed": 0}',
    'user': '{"id": 7, "tags": [], "views": 0}',
    'cart': '{"items": [], "total": 0, "id": "c1", "status": "open"}',
    'sync': '{"conflicts": [], "synced": 14, "failed": 0}',
    'hits1': '{"took": 3, "hits": {"total": {"value": 2, "relation": "eq"}, "hits": []}}',
    'elastic-size0': '{"took": 3, "hits": {"total": {"value": 120, "relation": "eq"}, "hits": []}, "aggregations": {"a": {"value": 7.5}}}',
    'aggregation': '{"took": 3, "hits": {"total": {"value": 0, "relation": "eq"}, "hits": []}, "aggregations": {"a": {"value": 7.5}}}',
    'weather': '{"city": "Rome", "temp": 21, "alerts": []}',
    'device': '{"state": "on", "brightness": 0, "effects": []}',
    'jobs': '{"queue": [], "running": 3}',
    'test': '{"passed": 12, "failed": 0, "failures": []}',
    'exec': '{"stdout": "", "stderr": "", "exit_code": 0, "files": []}',
    'pr': '{"number": 12, "labels": [], "comments": 0, "title": "x"}',
    'file': '{"path": "a.py", "size": 0, "lines": []}',
}  # fmt: skip
QUERIES = (
    "Thornbury 1887 flood map", "map of flood Thornbury 1887", "1887 inundation Thornbury parish map",
    "old flood chart Thornbury", "Thornbury river 19th century scan", "high water Gloucestershire historical plan",
    "Thornbury flooding survey", "Victorian cartography of the flood", "flood extent 1887 archive", "Thornbury map pdf",
)  # fmt: skip


@pytest.mark.parametrize("service", NOTHING)
def test_a_search_that_found_nothing_is_empty_in_the_form_of_each_service(service: str) -> None:
    assert is_empty_result(NOTHING[service])


@pytest.mark.parametrize("kind", SOMETHING)
def test_an_object_that_says_something_beside_an_empty_list_is_not(kind: str) -> None:
    assert not is_empty_result(SOMETHING[kind])


@pytest.mark.parametrize("service", ["elastic full", "solr", "algolia", "graphql", "kubernetes", "brave"])
def test_a_fruitless_search_in_ever_new_words_is_nudged_whatever_the_service(service: str) -> None:
    at = nudged(evaluate(steps([("search", {"query": query}, NOTHING[service]) for query in QUERIES])))
    assert at is not None


def test_a_time_stamp_beside_nothing_is_no_news() -> None:
    feed = "<feed><title>Search: {}</title><updated>2026-05-03T00:00:{:02d}Z</updated><total>0</total></feed>"
    calls = [("search", {"query": query}, feed.format(query, at)) for at, query in enumerate(QUERIES)]
    assert nudged(evaluate(steps(calls))) is not None


@pytest.mark.parametrize(
    "beside",
    [{"updated_at": 1782800000}, {"lastModified": 1782800000123}, {"last_updated": 1782800000}, {"unchanged": 5}],
)
def test_the_time_of_the_newest_change_beside_an_empty_list_is_no_number_of_rows(beside: dict[str, int]) -> None:
    assert is_empty_result(json.dumps({"results": [], **beside}))


@pytest.mark.parametrize("name", ["rowCount", "rows_affected", "deletedCount", "nModified", "updated"])
def test_rows_that_were_changed_beside_an_empty_list_are_no_empty_result(name: str) -> None:
    assert not is_empty_result(json.dumps({"rows": [], name: 3}))
