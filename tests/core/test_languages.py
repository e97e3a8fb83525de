"""Something is under way, an error passes, a tool looks at a state: said in the languages that agents work in."""

from __future__ import annotations

import pytest

from trajectory_guard.core.content.pending import is_pending
from trajectory_guard.core.content.transient import is_transient
from trajectory_guard.core.tools import is_status_lookup

UNDER_WAY = [
    "Ihre Zahlung wird bearbeitet", "Sendung unterwegs zum Zustelldepot", "La commande est en cours de préparation",
    "Statut : en attente de validation", "Su solicitud está pendiente de aprobación", "O pedido está em processamento",
    "Pagamento: aguardando confirmação", "L'ordine è in lavorazione", "De aanvraag is in behandeling",
    "Zgłoszenie w trakcie realizacji", "Заявка в обработке, ожидайте", "Сборка выполняется", "Siparişiniz hazırlanıyor",
    "Onay bekleniyor", "订单正在配送", "构建排队中", "退款处理中，请稍候", "ビルドを実行中です", "承認待ち", "まだ完了していません",
    "주문 처리 중입니다", "배송 준비 중", "الطلب قيد التنفيذ", "جاري التحميل", "भुगतान की प्रक्रिया जारी है", "पेज लोड हो रहा है",
    "Đơn hàng đang được xử lý", "Pesanan sedang diproses", "กำลังดำเนินการ", "ההזמנה בתהליך",
]  # fmt: skip
DONE = [
    "Zahlung eingegangen", "Commande livrée", "Solicitud aprobada", "Pedido entregue", "Ordine consegnato", "Gotowe",
    "Заявка одобрена", "Siparişiniz teslim edildi", "订单已送达", "承認済み", "배송 완료", "تم التسليم", "भुगतान पूरा हुआ",
]  # fmt: skip
PASSING = [
    "Fehler 429: Zu viele Anfragen", "Der Dienst ist vorübergehend nicht erreichbar", "Zeitüberschreitung beim Verbinden",
    "Erreur 503 : service indisponible", "Trop de requêtes, réessayez plus tard", "Error 504: tiempo de espera agotado",
    "Demasiadas solicitudes", "Erro: conexão recusada", "Servizio temporaneamente sospeso", "Te veel verzoeken",
    "Przekroczono limit czasu", "Ошибка 503", "Слишком много запросов, попробуйте позже", "Zaman aşımı oluştu",
    "Sunucu meşgul", "请求过于频繁，请稍后再试", "错误 502", "接続がタイムアウトしました", "エラー503: 混み合っています", "요청이 너무 많습니다",
    "오류 429", "انتهت المهلة", "خطأ 503", "बहुत अधिक अनुरोध", "Quá nhiều yêu cầu", "Waktu habis",
]  # fmt: skip
LASTING = [
    "Fehler 404: nicht gefunden", "Accès refusé", "Usuario inexistente", "Erro: arquivo não encontrado",
    "Ошибка: нет такого файла", "Böyle bir kullanıcı yok", "找不到文件", "ファイルが見つかりません", "파일을 찾을 수 없습니다", "الملف غير موجود",
    "Fehler in Zeile 503", "फ़ाइल नहीं मिली",
]  # fmt: skip


@pytest.mark.parametrize("text", UNDER_WAY)
def test_what_is_under_way_is_pending(text: str) -> None:
    assert is_pending(text)


@pytest.mark.parametrize("text", DONE)
def test_what_is_done_is_not(text: str) -> None:
    assert not is_pending(text)


@pytest.mark.parametrize(
    "text",
    ["Job 7 is still running", "still not ready", "Still in the queue", "still 3 to go", "The lift is still busy"],
)
def test_what_still_goes_on_is_pending(text: str) -> None:
    assert is_pending(text)


@pytest.mark.parametrize(
    "text",
    [
        "The door is still locked.", "The cart is still empty", "The tests are still failing", "Your price: still $99",
        "Der See liegt still und leer da.", "You still see a wall.", "The page is still the same.", "Still too long.",
    ],
)  # fmt: skip
def test_what_is_still_as_it_was_is_not(text: str) -> None:
    """Nothing is under way: time alone will not change it."""
    assert not is_pending(text)


@pytest.mark.parametrize("text", PASSING)
def test_an_error_that_passes_is_transient(text: str) -> None:
    assert is_transient(text, None)


@pytest.mark.parametrize("text", LASTING)
def test_another_error_is_not(text: str) -> None:
    assert not is_transient(text, None)


def test_a_page_that_shows_such_a_word_is_not_pending() -> None:
    assert not is_pending("Seite 3\nWarteschlange: so planen Sie Ihren Besuch\nKontakt")


@pytest.mark.parametrize(
    "tool",
    [
        "siparis_durumu",
        "consultar_estado",
        "statut_commande",
        "stato_ordine",
        "статус_заказа",
        "申請状況",
        "订单状态",
        "주문상태",
    ],
)
def test_a_tool_that_looks_at_a_state_is_a_status_lookup(tool: str) -> None:
    assert is_status_lookup(tool)


@pytest.mark.parametrize(
    "tool",
    ["cambiar_estado", "изменить_статус", "durum_güncelle", "状態を更新", "修改状态", "realestate_search", "standard"],
)
def test_a_tool_that_changes_a_state_or_only_sounds_so_is_none(tool: str) -> None:
    assert not is_status_lookup(tool)
