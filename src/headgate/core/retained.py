"""Retained messages, in a tree of topic levels so that wildcards find them without a search."""

from __future__ import annotations

from headgate.core.message import Message


class Leaf:
    """One level of the retained topics."""

    def __init__(self) -> None:
        self.children: dict[bytes, Leaf] = {}
        self.message: Message | None = None


class Retained:
    """The last retained message of each topic (MQTT 5 §3.3.1.3)."""

    def __init__(self) -> None:
        self.root = Leaf()
        self.count = 0

    def get(self, topic: bytes) -> Message | None:
        leaf = self.root
        for level in topic.split(b"/"):
            child = leaf.children.get(level)
            if child is None:
                return None
            leaf = child
        return leaf.message

    def put(self, message: Message) -> None:
        leaf = self.root
        for level in message.topic.split(b"/"):
            child = leaf.children.get(level)
            if child is None:
                child = leaf.children[level] = Leaf()
            leaf = child
        if leaf.message is None:
            self.count += 1
        leaf.message = message

    def remove(self, topic: bytes) -> bool:
        """Forget a topic's message; False if there was none."""
        path = [(b"", self.root)]
        for level in topic.split(b"/"):
            child = path[-1][1].children.get(level)
            if child is None:
                return False
            path.append((level, child))
        if path[-1][1].message is None:
            return False
        path[-1][1].message = None
        self.count -= 1
        for (_, parent), (level, child) in zip(path[-2::-1], path[:0:-1], strict=True):
            if child.children or child.message is not None:
                break
            del parent.children[level]
        return True

    def matching(self, topic_filter: bytes) -> list[Message]:
        """The retained messages whose topics a filter matches."""
        found: list[Message] = []
        gather(self.root, topic_filter.split(b"/"), 0, found)
        return found


def gather(leaf: Leaf, levels: list[bytes], depth: int, found: list[Message]) -> None:
    """Add what matches the levels of a filter from `depth` on."""
    if depth == len(levels):
        if leaf.message is not None:
            found.append(leaf.message)
        return
    level = levels[depth]
    if level == b"#":
        gather_all(leaf, depth == 0, found)
    elif level == b"+":
        for name, child in leaf.children.items():
            if depth > 0 or not name.startswith(b"$"):
                gather(child, levels, depth + 1, found)
    else:
        exact = leaf.children.get(level)
        if exact is not None:
            gather(exact, levels, depth + 1, found)


def gather_all(leaf: Leaf, top: bool, found: list[Message]) -> None:
    """Add everything from a leaf on; wildcards do not match a leading $ [MQTT-4.7.2-1]."""
    if leaf.message is not None:
        found.append(leaf.message)
    for name, child in leaf.children.items():
        if not (top and name.startswith(b"$")):
            gather_all(child, False, found)
