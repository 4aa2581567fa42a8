"""The recipes for texts: ten scripts, hostile input, and what they must not merge."""

# ruff: noqa: RUF001 -- letters that look alike

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup import Deduplicator, Kind, load_recipe
from stream_dedup.features.recipe import replace
from stream_dedup.offline.clusters import find_line_clusters
from tests.strategies import HOSTILE_TEXTS, texts

KEY = b"sixteen secrets!"
RECIPES = ("text", "messages", "documents", "records")

SCRIPTS = {
    "Chinese": (
        "尊敬的客户,您的银行账户已被冻结,请立即点击链接验证您的身份信息以恢复正常使用",
        "尊敬的用户,您的银行账户已经被冻结,请立即点击链接验证您的身份信息以便恢复使用!",
        "明天下午三点在图书馆门口见面,记得带上你的笔记本电脑和上次借的那本历史书",
    ),
    "Japanese": (
        "お客様のアカウントに不正なログインが検出されました。至急こちらからパスワードを変更してください",
        "お客様のアカウントに不正ログインが検出されました!至急こちらよりパスワードを変更してください。",
        "明日の会議は三時から始まりますので、資料を印刷して会議室まで持ってきていただけますか",
    ),
    "Korean": (
        "고객님의 택배가 주소 불명으로 반송되었습니다 아래 링크에서 주소를 확인해 주세요",
        "고객님 택배가 주소불명으로 반송되었습니다. 아래 링크에서 주소 확인해 주세요!",
        "내일 저녁에 친구들이랑 영화 보러 가기로 했는데 같이 갈 수 있으면 연락 줘",
    ),
    "Arabic": (
        "عزيزي العميل تم إيقاف بطاقتك المصرفية يرجى الاتصال بنا فورا لتحديث بياناتك الشخصية",
        "عزيزي العميل، تم ايقاف بطاقتك المصرفية! يرجى الاتصال بنا فوراً لتحديث بياناتك",
        "سنلتقي غدا في المكتبة بعد صلاة العصر لا تنس إحضار الكتاب الذي استعرته الأسبوع الماضي",
    ),
    "Hebrew": (
        "לקוח יקר החשבון שלך נחסם עקב פעילות חריגה לחץ על הקישור כדי לאמת את פרטיך",
        "לקוח יקר, חשבונך נחסם עקב פעילות חריגה! לחץ על הקישור כדי לאמת את הפרטים",
        "ניפגש מחר בתחנת הרכבת בשעה שמונה בבוקר ואל תשכח להביא את המפתחות של הדירה",
    ),
    "Russian": (
        "Уважаемый клиент ваша карта заблокирована срочно позвоните по номеру указанному ниже",
        "Уважаемый клиент! Ваша карта заблокированна, срочно позвоните по номеру ниже",
        "Завтра утром встречаемся на вокзале возле расписания не забудь взять с собой паспорт",
    ),
    "Greek": (
        "Αγαπητέ πελάτη ο λογαριασμός σας έχει κλειδωθεί πατήστε τον σύνδεσμο για επιβεβαίωση",
        "ΑΓΑΠΗΤΕ ΠΕΛΑΤΗ, ο λογαριασμος σας εχει κλειδωθει! Πατηστε το σύνδεσμο για επιβεβαιωση",
        "Αύριο το πρωί θα πάμε στη θάλασσα με τα παιδιά αν θέλεις έλα κι εσύ μαζί μας",
    ),
    "Hindi": (
        "प्रिय ग्राहक आपका बैंक खाता बंद कर दिया गया है कृपया तुरंत इस नंबर पर संपर्क करें",
        "प्रिय ग्राहक, आपका बैंक खाता बंद कर दिया गया है! तुरंत इस नंबर पर संपर्क कीजिए",
        "कल शाम को हम सब बाजार जाएंगे अगर तुम्हें कुछ मंगवाना हो तो मुझे बता देना",
    ),
    "Thai": (
        "เรียนลูกค้า บัญชีธนาคารของท่านถูกระงับ กรุณากดลิงก์เพื่อยืนยันตัวตนของท่านทันที",
        "เรียนลูกค้า! บัญชีธนาคารของคุณถูกระงับ กรุณากดลิงก์เพื่อยืนยันตัวตนทันที",
        "พรุ่งนี้เช้าเราจะไปตลาดกับแม่ ถ้าอยากได้อะไรบอกได้เลยนะจะซื้อมาฝาก",
    ),
    "Georgian": (
        "პატივცემულო მომხმარებელო თქვენი ანგარიში დაბლოკილია გთხოვთ დაადასტუროთ მონაცემები",
        "პატივცემულო მომხმარებელო, თქვენი ანგარიში დაიბლოკა! გთხოვთ დაადასტუროთ მონაცემები",
        "ხვალ საღამოს სტუმრად მოვალთ და ნამცხვარსაც მოვიტანთ თუ სახლში იქნებით დაგვირეკეთ",
    ),
}


def clusters(recipe: str, *events: str | bytes) -> list[int | None]:
    return [each.cluster for each in Deduplicator(recipe, key=KEY).process(events)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_near_duplicates_of_a_script_are_found_and_no_others(script: str) -> None:
    first, changed, other = SCRIPTS[script]
    found = clusters("text", first, other, changed)

    assert found[0] == found[2]
    assert found[0] != found[1]


@pytest.mark.parametrize("recipe", RECIPES)
def test_texts_of_different_scripts_stay_apart(recipe: str) -> None:
    every = [text for several in SCRIPTS.values() for text in (several[0], several[2])]

    assert len(set(clusters(recipe, *every))) == 20


ADDRESSES = (
    "Catholic Charities of the Archdiocese - Our Lady of Lourdes 1449 S Keeler Ave 5213126",
    "Catholic Charities of the Archdiocese - Saint Ailbe 9015 S Harper Ave 2775888",
)


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (*ADDRESSES, False),  # a long name in common, and other numbers
        (ADDRESSES[0], ADDRESSES[0].replace("Our Lady of", "O.L."), True),
        ("Quiet rivers carry small boats", "Quiet rivers carry blue boats", True),
        ("your parcel waits downtown today", "today your parcel waits downtown", True),
        ("Your code is 482913", "Your code is 771", True),
        ("Your code is 482913", "His name is 482913", False),
    ],
)
def test_words_and_numbers_count_beside_letters(first: str, second: str, equal: bool) -> None:
    found = clusters("messages", first, second)

    assert (found[0] == found[1]) is equal


@pytest.mark.parametrize("name", ["words", "json"])
def test_unlike_texts_with_near_fingerprints_stay_apart(name: str) -> None:
    drawn = random.Random(1)
    words = ["".join(drawn.choices("abcdefghijkmnopqrstuvwxyz", k=6)) for _ in range(2_000)]
    bodies = [" ".join(drawn.choices(words, k=40)) for _ in range(300)]
    lines = [json.dumps({"body": body}).encode() for body in bodies]
    verified = replace(load_recipe(name), fingerprint__width=32, match__k=8)
    merged = []
    for recipe in (verified, replace(verified, match__jaccard=0)):
        dedup = Deduplicator(recipe, key=KEY)
        dedup.process(lines)
        merged.append((dedup.counts.duplicates > 0, find_line_clusters(lines, recipe) != []))

    assert merged == [(False, False), (True, True)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_texts_without_letters_are_no_black_hole(recipe: str) -> None:
    drawn = random.Random(1)
    symbols = ["".join(drawn.choices("0123456789.,-/@#!?", k=40)) for _ in range(300)]
    emoji = ["".join(drawn.choices("😀🎉💰🔥👍🍕🚀🌍", k=12)) for _ in range(300)]
    links = [f"https://{drawn.getrandbits(40):x}.example/{n}" for n in range(300)]
    numbers = [str(drawn.getrandbits(60)) for _ in range(300)]

    for several in (symbols, emoji, links, numbers):
        found = clusters(recipe, *several)
        assert max(map(found.count, set(found))) <= 15


def test_one_letter_among_symbols_is_no_black_hole() -> None:
    drawn = random.Random(1)
    words = ["".join(drawn.choices("abcdefghijkmnopqrstuvwxyz", k=7)) for _ in range(300)]

    found = clusters("text", *(f"{word} {'1 ' * 30}" for word in words))

    assert len(set(found)) >= 295


@pytest.mark.parametrize("recipe", RECIPES)
@given(several=st.lists(texts, max_size=6))
def test_any_bytes_are_decided(recipe: str, several: list[bytes]) -> None:
    decisions = Deduplicator(recipe, key=KEY).process(several)

    assert len(several) == len(decisions)
    assert all(each.kind is Kind.PASSED or each.cluster is not None for each in decisions)


def cpu_s(dedup: Deduplicator, several: Sequence[bytes]) -> float:
    """Return the processor time that texts take."""
    start = time.process_time()
    dedup.process(several)
    return time.process_time() - start


def ordinary(drawn: random.Random, size: int) -> bytes:
    return "".join(drawn.choices("abcdefghij   ", k=size)).encode()


@pytest.mark.parametrize("recipe", RECIPES)
def test_hostile_texts_cost_no_more_than_their_length(recipe: str) -> None:
    dedup, drawn = Deduplicator(recipe, key=KEY), random.Random(1)
    dedup.process_one("once, so that tables are loaded")
    plain = [ordinary(drawn, len(text)) for text in HOSTILE_TEXTS for _ in range(3)]
    usual = cpu_s(dedup, plain)
    hostile = cpu_s(dedup, HOSTILE_TEXTS)
    found = [dedup.process_one(text).cluster for text in HOSTILE_TEXTS * 2]

    assert found[: len(HOSTILE_TEXTS)] == found[len(HOSTILE_TEXTS) :]
    assert len(set(found)) == len(HOSTILE_TEXTS)
    assert hostile < 15 * usual  # some 0.5: five times as much for a text of 18 letters a character


@pytest.mark.parametrize(
    ("recipe", "unit"),
    [("text", "e\u0301\u0302".encode()), ("documents", b"the same line again and again, ")],
)
def test_one_text_of_100_mb_is_bounded(recipe: str, unit: bytes) -> None:
    dedup = Deduplicator(recipe, key=KEY)
    large = unit * (100_000_000 // len(unit))
    tracemalloc.start()
    try:
        first, second = dedup.process_one(large), dedup.process_one(large + b"x")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # The text with another head, and `large + b"x"` itself: no part is held several times.
    assert most < 420_000_000
    assert (first.kind, second.kind) == (Kind.NEW, Kind.DUPLICATE)


def test_many_texts_that_share_a_key_cost_no_more_than_others() -> None:
    drawn = random.Random(1)

    def texts_after(common: str) -> list[bytes]:
        return [
            (common + "".join(drawn.choices("abcdefghijkmnopqrstuvwxyz", k=40))).encode()
            for _ in range(10_000)
        ]

    usual = cpu_s(Deduplicator("text", key=KEY), texts_after(""))
    dedup, several = Deduplicator("text", key=KEY), texts_after("we are glad to tell you ")
    crowded = cpu_s(dedup, several)

    assert len(dedup.close(patterns=False)) >= 9_900
    assert dedup.counts.events == len(several)
    assert crowded < 20 * usual  # some 3


def test_without_the_key_nobody_knows_which_texts_share_bands() -> None:
    first, changed, _ = SCRIPTS["Russian"]
    recipe = load_recipe("text")
    keys = [bytes([n] * 16) for n in range(1, 9)]
    distances = set()
    for key in keys:
        dedup = Deduplicator(recipe, key=key)
        distances.add(dedup.process([first, changed])[1].distance)

    assert len(distances) > 1
