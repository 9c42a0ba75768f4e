"""Checks that the links of a site lead to files and headings in it: links.py FOLDER"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in {("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")} and value:
                self.links.append(value)


def main(folder: Path) -> int:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            # Addresses of other sites, and those that scripts make.
            if parts.scheme or parts.netloc or path.name in {"404.html", "toc.html"}:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if target.is_dir():
                target /= "index.html"
            anchors = pages[target].anchors if target in pages else None
            is_there = target.exists() and (not parts.fragment or anchors is None or parts.fragment in anchors)
            if not is_there:
                broken.append(f"{path.relative_to(folder)}: {link}")
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, {len(broken)} broken")
    print("\n".join(sorted(set(broken))), end="\n" if broken else "")
    return 1 if broken or len(pages) < 20 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
