"""Pages for users: which they are, and the blocks, commands and links in them."""

import pathlib
import re


def installed_pages(source):
    """Paths of the pages that tools/install.cmake installs, relative to the source."""
    text = (source / "tools/install.cmake").read_text()
    names = re.search(r"^set\(pages (.*?)\)$", text, re.M | re.S)[1].split()
    return [name for name in names if name.endswith(".md")]


def blocks(text):
    """Fenced blocks: (language, the rest of the fence's line, text)."""
    return re.findall(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", text, re.M | re.S)


def commands(text):
    """The commands of a block: lines that a backslash, a quote or && continues are one."""
    found, command = [], ""
    for line in text.splitlines():
        command += line
        if line.endswith("\\") or command.count("'") % 2:
            command += "\n"
            continue
        if command.strip() and not command.startswith("#"):
            found.append(command)
        command = ""
    return found


def session(text):
    """A block of "console": (command, lines of its output) for each line that begins with $."""
    found = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines).strip()
            found.append((command, []))
        elif line != "…":
            found[-1][1].append(line)
    return found


def anchors(text):
    """Those of the headings of a page, as GitHub makes them."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip()
            .lower().replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", outside, re.M)}


def broken_links(page, root):
    """Links of a page in the folder root that lead nowhere, or out of it."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(root) or not target.exists():
            found.append(f"{page.relative_to(root)}: {link}: no such file")
        elif anchor and anchor not in anchors(target.read_text()):
            found.append(f"{page.relative_to(root)}: {link}: no such heading")
    return found


# Folders of the repository; others that pages name, such as results/, are the user's.
PATH = re.compile(r"(?<![\w/.$~-])(?:app|inputs|jobs|lib|tests|tools)/[\w./-]*\w")
# Set-up, which only a clone has.
OF_A_CLONE = {"tools/build", "tools/container.def", "tools/demo", "tools/setup", "tools/test"}
# Pages that say where in the repository something comes from.
OF_THE_REPOSITORY = {"licences.md", "MODEL_CARD.md"}


def missing_paths(page, root):
    """Paths that a page names and that are not below root."""
    return [f"{page.relative_to(root)}: {name}" for name in PATH.findall(page.read_text())
            if not (root / name).exists()]


def installed_problems(share):
    """Links and paths of the pages of an installation that lead nowhere, or out of it."""
    found = []
    for page in sorted(share.rglob("*.md")):
        found += broken_links(page, share)
        if page.name not in OF_THE_REPOSITORY:
            found += [text for text in missing_paths(page, share)
                      if text.split(": ")[1] not in OF_A_CLONE]
        found += [f"{page.relative_to(share)}: {name}"
                  for name in re.findall(rf"{re.escape(str(share))}/[\w./-]*\w", page.read_text())
                  if not pathlib.Path(name).exists()]
    return found
