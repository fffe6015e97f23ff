#!/usr/bin/env python3
"""Pages: links between them lead to files and headings, and paths that pages for users name exist;
they are as short as they have to be. check_pages.py SOURCE"""
import pathlib
import sys

root = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(root / "tests/end_to_end"))
from pages import broken_links, installed_pages, missing_paths  # noqa: E402

PAGES = installed_pages(root)
OTHERS = {"tools/licences.md"}  # installed, but nothing to learn from
WORDS = {"jobs/first_job.md": 600}
problems = []

folders = ("app", "inputs", "jobs", "lib", "tests", "tools", ".github")
for page in sorted({*root.glob("*.md"), *(path for folder in folders
                                          for path in (root / folder).rglob("*.md"))}):
    problems += broken_links(page, root)
for name in PAGES:
    problems += missing_paths(root / name, root)
for name, most in WORDS.items():
    words = len((root / name).read_text().split())
    if words > most:
        problems.append(f"{name}: found {words} words, expected at most {most}")
size = (root / "README.md").stat().st_size
if size > 10240:
    problems.append(f"README.md: found {size} bytes, expected at most 10240")
for page in sorted((root / "lib").rglob("*.md")):
    lines = len(page.read_text().splitlines())
    if lines > 80:
        problems.append(f"{page.relative_to(root)}: found {lines} lines, expected at most 80")

print("\n".join(problems), end="\n" if problems else "")
print("pages for users:", sum(len((root / name).read_text().split())
                              for name in PAGES if name not in OTHERS), "words")
sys.exit(bool(problems))
