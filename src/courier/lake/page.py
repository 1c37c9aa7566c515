"""An HTML page that needs no script, no network and nothing beside it, and its pieces."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

TEXT_MAX = 48


def whole(title: str, when: str, body: str, footer: str) -> str:
    """The page. All but `title` and `footer` are HTML already."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<title>Courier report: {safe(title)}</title><style>{_CSS}</style></head><body><main>"
        f"<header><p class=brand>Courier report</p><h1>{safe(title)}</h1>"
        f"<p class=when>{when}</p></header>{body}<footer>{safe(footer)}</footer>"
        "</main></body></html>\n"
    )


def figure(title: str, svg: str, says: str) -> str:
    shown = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    return f"<figure><h3>{safe(title)}</h3>{shown}<figcaption>{safe(says)}</figcaption></figure>"


def table(columns: Sequence[str], rows: Sequence[Sequence[str | None]], *, numbers: int) -> str:
    """The last `numbers` columns are set to the right."""
    if not rows:
        return ""
    first = len(columns) - numbers
    head = "".join(f"<th{_side(n, first)}>{safe(name)}" for n, name in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(f"<td{_side(n, first)}>{_cell(text)}" for n, text in enumerate(row))
        for row in rows
    )
    return f"<div class=wide><table><thead><tr>{head}<tbody>{body}</table></div>"


def _side(column: int, first: int) -> str:
    return " class=n" if column >= first else ""


def _cell(text: str | None) -> str:
    whole = text or "-"
    if len(whole) <= TEXT_MAX:
        return safe(whole)
    return f'<span title="{escape(whole)}">{safe(whole[: TEXT_MAX - 1])}…</span>'


def safe(text: str) -> str:
    """Safe in HTML; control characters, which a name may hold, are shown as what they are."""
    return escape("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text))


def rest(total: int, shown: int, noun: str) -> str:
    return (
        f"<p>And {count(total - shown, f'{noun} more', f'{noun}s more')}.</p>"
        if total > shown
        else ""
    )


def moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}"


def count(number: int, noun: str, nouns: str = "") -> str:
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def size(size: int | None) -> str:
    value, units = float(size or 0), iter(("KB", "MB", "GB", "TB", "PB"))
    if value < 1_000:
        return f"{value:.0f} bytes"
    while value >= 1_000:
        value, unit = value / 1_000, next(units)
    return f"{value:.3g} {unit}"


def words(name: str) -> str:
    return name.replace("_", " ")


# Colours are told apart by people who see few of them, and by their lightness on paper.
_CSS = """
:root{--ink:#1d2733;--soft:#5b6776;--line:#cfd6de;--page:#f6f7f9;--card:#fff;--one:#0072b2;
--two:#d55e00;--three:#a0417f;--good:#00694d;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e7ecf2;--soft:#a3afbd;--line:#3b4653;
--page:#12171d;--card:#1b222b;--one:#56b4e9;--two:#f0a13a;--three:#e291c0;--good:#4fd1a5;
--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 40px}
header{margin-bottom:22px}h1{font-size:28px;line-height:1.2;margin:2px 0;overflow-wrap:anywhere}
h2{font-size:19px;margin:34px 0 12px}h3{font-size:14px;margin:0 0 6px;font-weight:600}
p{margin:0 0 10px}.brand,.when,footer,figcaption,.wide+p{color:var(--soft)}
.brand{margin:0;font-weight:600;letter-spacing:.02em}.lead{font-size:18px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:10px;margin:0}
.cards div,figure,.wide{background:var(--card);border:1px solid var(--line);border-radius:8px}
.cards div{padding:10px 12px}dt{font-size:13px;color:var(--soft)}
dd{margin:0;font-size:22px;font-weight:650;line-height:1.3;font-variant-numeric:tabular-nums}
dd small{display:block;font-size:12px;font-weight:400;color:var(--soft)}
.two,.three{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr))}
.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));margin-top:14px}
figure{margin:0;padding:12px 14px}svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}svg .name{fill:var(--ink)}
.rule{stroke:var(--line);stroke-width:.6}.line{fill:none;stroke-width:1.6}.area{opacity:.3}
.solid{opacity:1}.line.s1{stroke:var(--one)}.line.s2{stroke:var(--two)}
.line.s3{stroke:var(--three)}.area.s1{fill:var(--one)}.area.s2{fill:var(--two)}
.area.s3{fill:var(--three)}.dashed{stroke-dasharray:5 1.5}.dotted{stroke-dasharray:1.5 1.5}
figcaption{font-size:13px;margin-top:6px}
.wide{overflow-x:auto;margin-bottom:8px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:6px 12px;text-align:left;white-space:nowrap;border-top:1px solid var(--line)}
th{border:0;font-weight:600;color:var(--soft);font-size:13px}
.n{text-align:right;font-variant-numeric:tabular-nums}
.good,.bad{font-size:16px;font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}
footer{margin-top:34px;font-size:13px;border-top:1px solid var(--line);padding-top:10px}
@media print{:root{--ink:#000;--soft:#444;--line:#bbb;--page:#fff;--card:#fff;--one:#0072b2;
--two:#d55e00;--three:#a0417f;--good:#00694d;--bad:#b3261e}@page{margin:14mm}
body{font-size:11pt}main{max-width:none;padding:0}.two{grid-template-columns:1fr 1fr}
.three{grid-template-columns:1fr 1fr 1fr}.cards{grid-template-columns:repeat(4,1fr)}
figure,tr,.cards div{break-inside:avoid}h2{break-after:avoid}
.wide{overflow:visible}th,td{padding:3px 6px;white-space:normal;overflow-wrap:anywhere}
table{font-size:9pt}}
"""
