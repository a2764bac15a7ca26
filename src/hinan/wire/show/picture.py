"""The path as a picture: SVG, and an HTML page around it. No scripts, no fonts, nothing loaded from elsewhere.

Owns:      layout and colours: boxes for hops, bars as wide as the link's bandwidth, the narrow hop in colour, sharers
           beside the hop they share.
Promises:  every text from a source is escaped, and holds what XML allows; unknown bandwidth is a dashed thin line, not a
           guess, and so is a part of the way that nobody tells. No PCIe port stands on the way of a GPU that reaches RAM
           by another link.
"""

from __future__ import annotations

import html as html_

from hinan.wire.facts.text import printable
from hinan.wire.show.answer import Hop, Report
from hinan.wire.show.figures import Figure, figures_of
from hinan.wire.show.render import clip, gigabytes, iommu_words, seconds, sentence
from hinan.wire.show.segments import UNTOLD, Segment, drawn_of, is_broken

WIDTH, BOX_WIDTH, BOX_HEIGHT, GAP, LEFT = 960, 380, 54, 46, 40
_BESIDE_A_LINE = 90  # letters of the widest kind that still fit on the right
WIDEST_BAR, THINNEST_BAR = 46.0, 3.0
_STYLE = """
:root{--ink:#1b2430;--soft:#5b6778;--line:#8fa3b8;--box:#f3f6fa;--edge:#c3cedb;--bar:#5b8db8;--hot:#d2541f;--page:#ffffff}
@media (prefers-color-scheme:dark){:root{--ink:#e7edf4;--soft:#a3b1c2;--line:#5f7387;--box:#1e2936;--edge:#3a4a5c;
--bar:#5f97c7;--hot:#ff8552;--page:#121a23}}
text{font-family:system-ui,sans-serif;fill:var(--ink)}
.soft{fill:var(--soft);font-size:13px}.name{font-size:15px;font-weight:600}
.box{fill:var(--box);stroke:var(--edge);stroke-width:1.5}.box.narrow{stroke:var(--hot);stroke-width:3}
.bar{fill:var(--bar)}.bar.narrow{fill:var(--hot)}
.inside{stroke:var(--line);stroke-width:1.5}
.unknown{stroke:var(--line);stroke-width:3;stroke-dasharray:6 5}
.sharer{fill:none;stroke:var(--line);stroke-width:1.2}.hot{fill:var(--hot);font-weight:600}
"""
_PAGE = """
body{margin:0 auto;max-width:1000px;padding:24px 20px;font-family:system-ui,sans-serif;background:var(--page);
color:var(--ink)}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 8px}p{margin:4px 0;color:var(--soft)}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:6px 10px 6px 0;border-bottom:1px solid var(--edge);vertical-align:top}
td.n{font-variant-numeric:tabular-nums;white-space:nowrap}
svg{width:100%;height:auto}li{margin:6px 0;overflow-wrap:anywhere}
.finding{border-left:4px solid var(--hot);padding-left:10px;list-style:none}
ul{padding-left:18px}.figure{overflow-x:auto}
"""


def escape(text: str) -> str:
    """As XML takes it: markup escaped, and nothing in it that XML cannot hold."""
    return html_.escape(printable(text))


def svg(report: Report, *, titled: bool = True) -> str:
    """A standalone SVG document; without its title where a page has one."""
    top = 40 if titled else 12
    body = [f'<text x="{LEFT}" y="24" class="name">{escape(_summary(report))}</text>'] if titled else []
    segments = drawn_of(report)
    many = len({hop.ceiling_bytes_per_s for hop in report.hops if hop.ceiling_bytes_per_s is not None}) > 1
    best = max((segment.ceiling_bytes_per_s or 0.0 for segment in segments), default=0.0)
    y = top
    for segment in segments:
        narrow = many and segment.hop.address == report.narrowest
        body += [*_box(segment.hop, y, narrow), _between(segment, y + BOX_HEIGHT, best, report), *_beside(segment, y)]
        y += BOX_HEIGHT + GAP
    if is_broken(report):
        body.append(_line("unknown", y, f"? {UNTOLD}"))
        y += GAP
    body += _ram(report, y)
    height = y + BOX_HEIGHT + 14
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(_summary(report))}"><style>{_STYLE}</style>{"".join(body)}</svg>'
    )


def _summary(report: Report) -> str:
    name = f"GPU {report.gpu.index} {report.gpu.address or ''}".strip() if report.gpu else "no GPU"
    return f"{name} to RAM, ceiling {gigabytes(report.ceiling_bytes_per_s)}"


def _rect(y: int, mark: str = "") -> str:
    size = f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="7"'
    return f'<rect class="box{mark}" x="{LEFT}" y="{y}" {size}/>'


def _box(hop: Hop, y: int, narrow: bool) -> list[str]:
    kind = f"{hop.kind}{' (narrowest)' if narrow else ''}"
    return [
        _rect(y, " narrow" if narrow else ""),
        f'<text x="{LEFT + 14}" y="{y + 23}" class="name">{escape(hop.address)}</text>',
        f'<text x="{LEFT + 150}" y="{y + 23}" class="{"hot" if narrow else "soft"}">{escape(kind)}</text>',
        f'<text x="{LEFT + 14}" y="{y + 43}" class="soft">{escape((hop.name or "")[:46])}</text>',
    ]


def _between(segment: Segment, y: int, best: float, report: Report) -> str:
    """A link's bar, as wide as its share of the fastest; dashed where unknown; a thin line where there is no link."""
    if segment.kind == "coherent":
        return _line("unknown", y, _coherent_words(report))
    if segment.kind != "link":
        return _line("inside", y, _label(segment))
    if not segment.ceiling_bytes_per_s or not best:
        return _line("unknown", y, _label(segment))
    middle = LEFT + BOX_WIDTH // 2
    width = max(THINNEST_BAR, WIDEST_BAR * segment.ceiling_bytes_per_s / best)
    name = "bar narrow" if segment.narrow else "bar"
    bar = f'<rect class="{name}" x="{middle - width / 2:.1f}" y="{y}" width="{width:.1f}" height="{GAP}"/>'
    return bar + _words(y, _label(segment))


def _line(kind: str, y: int, words: str) -> str:
    middle = LEFT + BOX_WIDTH // 2
    return f'<line class="{kind}" x1="{middle}" x2="{middle}" y1="{y}" y2="{y + GAP}"/>{_words(y, words)}'


def _words(y: int, words: str) -> str:
    return f'<text x="{LEFT + BOX_WIDTH // 2 + 34}" y="{y + 28}" class="soft">{escape(clip(words, _BESIDE_A_LINE))}</text>'


def _coherent_words(report: Report) -> str:
    rate = f"{gigabytes(report.reported_bytes_per_s)} reported" if report.reported_bytes_per_s else "no ceiling claimed"
    return f"{report.coherent_link}, {rate}"


def _label(segment: Segment) -> str:
    if segment.kind != "link":
        return {"switch": "inside the switch", "root": "root complex"}[segment.kind]
    hop = segment.hop
    told = f"{hop.cap_gt_s:g} GT/s" if hop.cap_gt_s else f"{hop.now_gt_s:g} GT/s now" if hop.now_gt_s else ""
    rate = gigabytes(segment.ceiling_bytes_per_s)
    return f"{told} x{hop.width or '?'}, {rate}" if told else f"speed unknown, {rate}"


def _beside(segment: Segment, y: int) -> list[str]:
    """The others that cross this link, beside it."""
    shared = segment.hop.shared_with
    if not shared or segment.kind != "link":
        return []
    x, middle = LEFT + BOX_WIDTH + 70, y + BOX_HEIGHT // 2
    shown = ", ".join(shared[:5]) + (f" and {len(shared) - 5} more" if len(shared) > 5 else "")
    return [
        f'<path class="sharer" d="M{LEFT + BOX_WIDTH} {middle} H{x - 10}"/>',
        f'<text x="{x}" y="{middle - 4}" class="soft">shared with</text>',
        f'<text x="{x}" y="{middle + 14}" class="soft">{escape(shown)}</text>',
    ]


def _ram(report: Report, y: int) -> list[str]:
    node = f"node {report.numa_node}" if report.numa_node is not None else "node unknown"
    return [
        _rect(y),
        f'<text x="{LEFT + 14}" y="{y + 23}" class="name">RAM, {escape(node)}</text>',
        f'<text x="{LEFT + 14}" y="{y + 43}" class="soft">IOMMU {escape(iommu_words(report))}</text>',
    ]


def _figure_row(figure: Figure) -> str:
    rate, took = gigabytes(figure.bytes_per_s), seconds(figure.duration_s) or "unknown"
    label = figure.label if figure.bytes_per_s else "unknown"
    return f"<tr><td>{escape(figure.way)}</td><td>{label}</td><td class=n>{escape(rate)}</td><td class=n>{took}</td></tr>"


def html(report: Report) -> str:
    """A page with the picture, the figures with their labels, the findings and the notes."""
    figures = "".join(map(_figure_row, figures_of(report)))
    findings = "".join(f"<li class=finding>{escape(sentence(f))}</li>" for f in report.findings) or "<li>none</li>"
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    state = f"{report.state_bytes / 1e9:.1f} GB of state" if report.state_bytes is not None else "no state size given"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(_summary(report))}</title><style>{_STYLE}{_PAGE}</style></head><body>"
        f"<h1>{escape(_summary(report))}</h1><p>{escape(state)}; read from {escape(', '.join(report.sources))}</p>"
        f'<div class="figure">{svg(report, titled=False)}</div>'
        f"<h2>Figures</h2><table><tr><th>way</th><th>label</th><th>rate</th><th>this state</th></tr>{figures}</table>"
        f"<h2>Findings</h2><ul>{findings}</ul><h2>Notes</h2><ul>{notes}</ul></body></html>\n"
    )
