"""The page around the sections: one string, no scripts, nothing fetched, light or dark."""

from __future__ import annotations

from html import escape

__all__ = ["page_of"]

STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--soft:#5b6470;--line:#e3e6ea;--card:#f6f7f9;
--mark:#1f5fb0}
@media (prefers-color-scheme:dark){:root{
--page:#14171b;--text:#e6e8eb;--soft:#9aa4b0;--line:#2b3138;--card:#1c2126;
--mark:#7fb2f0}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 system-ui,sans-serif}
main{max-width:66rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;padding-top:1.25rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.5rem 0 .25rem}
p{max-width:44rem;margin:.4rem 0 .8rem}
.soft{color:var(--soft)}
.small{font-size:.85rem}
.facts{display:flex;flex-wrap:wrap;gap:.75rem;margin:1.25rem 0;padding:0}
.facts div{flex:1 0 auto;min-width:7rem;max-width:100%;background:var(--card);
border-radius:.5rem;padding:.7rem .9rem}
.facts dt{font-size:.8rem;color:var(--soft)}
.facts dd{margin:0;font-size:1.2rem;font-weight:600;font-variant-numeric:tabular-nums;
overflow-wrap:break-word}
.grid{overflow-x:auto;margin:1rem 0}
.grid table{border-spacing:.35rem;border-collapse:separate}
.grid th{font-weight:400;font-size:.75rem;color:var(--soft);text-align:center}
.grid td{vertical-align:top;padding:0;width:5.6rem}
.grid img{display:block;width:5.4rem;height:5.4rem;image-rendering:pixelated;border-radius:.25rem;
background:#fff}
.grid .kinds{font-size:.68rem;line-height:1.25;min-height:1.7rem;margin-top:.15rem;color:var(--soft)}
.grid .kinds b{color:var(--mark);font-weight:600}
figure{margin:1rem 0;background:#fff;border-radius:.5rem;padding:.5rem;max-width:48rem}
figure img,figure svg{display:block;width:100%;height:auto}
figcaption{color:#5b6470;font-size:.85rem;padding:.35rem .5rem .25rem}
.scroll{overflow-x:auto}
table.plain{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
table.plain th,table.plain td{padding:.3rem .7rem;border-bottom:1px solid var(--line);
text-align:right;white-space:pre}
table.plain .word{text-align:left}
table.plain th{font-weight:500;color:var(--soft)}
blockquote{margin:1rem 0;padding:.4rem 1rem;border-left:3px solid var(--line);color:var(--soft);
max-width:44rem;white-space:pre-line}
"""


def page_of(title: str, sections: list[str]) -> str:
    """A whole HTML document of sections that are HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )
