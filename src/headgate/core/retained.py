"""Retained messages, in a tree of topic levels so that wildcards find them without a search."""

from __future__ import annotations

from collections.abc import Iterator

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

    def matching(self, topic_filter: bytes) -> Iterator[Message]:
        """The retained messages whose topics a filter matches."""
        yield from below(self.root, topic_filter.split(b"/"), 0)


def below(leaf: Leaf, levels: list[bytes], depth: int) -> Iterator[Message]:
    if depth == len(levels):
        if leaf.message is not None:
            yield leaf.message
        return
    level = levels[depth]
    if level == b"#":
        yield from everything(leaf, depth == 0)
    elif level == b"+":
        for name, child in leaf.children.items():
            if depth > 0 or not name.startswith(b"$"):
                yield from below(child, levels, depth + 1)
    else:
        exact = leaf.children.get(level)
        if exact is not None:
            yield from below(exact, levels, depth + 1)


def everything(leaf: Leaf, top: bool) -> Iterator[Message]:
    if leaf.message is not None:
        yield leaf.message
    for name, child in leaf.children.items():
        if not (top and name.startswith(b"$")):
            yield from everything(child, False)
