"""Retained messages, in a tree of topic levels so that wildcards find them without a search.

A `Cursor` walks the topics that a filter matches, a step at a time, and stays valid whatever
happens to the tree between two steps: siblings are chained in the order in which they came, and
where a cursor stands nothing is taken out of the chain before it has gone on.
"""

from __future__ import annotations

from headgate.core.link import MESSAGE, Pool
from headgate.core.message import Message

LEAF = 384
"""Bytes that a level of a topic takes besides its name (`python -m bench memory`)."""


class Leaf:
    """One level of the retained topics."""

    def __init__(self, name: bytes, parent: Leaf | None, born: int) -> None:
        self.name = name
        self.parent = parent
        self.born = born
        """Its place in the order in which levels came; later ones have larger numbers."""
        self.message: Message | None = None
        self.pins = 0
        """Cursors that stand here."""
        self.children: dict[bytes, Leaf] | None = None
        self.first: Leaf | None = None
        self.last: Leaf | None = None
        self.next: Leaf | None = None
        self.previous: Leaf | None = None

    def child(self, name: bytes) -> Leaf | None:
        return None if self.children is None else self.children.get(name)

    def adopt(self, name: bytes, born: int) -> Leaf:
        """A new child, after all others."""
        child = Leaf(name, self, born)
        if self.children is None:
            self.children = {}
        self.children[name] = child
        last = self.last
        if last is None:
            self.first = child
        else:
            child.previous = last
            last.next = child
        self.last = child
        return child

    def part(self, child: Leaf) -> None:
        """Let go of a child."""
        assert self.children is not None
        del self.children[child.name]
        before = child.previous
        after = child.next
        if before is None:
            self.first = after
        else:
            before.next = after
        if after is None:
            self.last = before
        else:
            after.previous = before
        child.previous = child.next = None


class Retained:
    """The last retained message of each topic (MQTT 5 §3.3.1.3)."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.root = Leaf(b"", None, 0)
        self.born = 0
        self.count = 0

    def leaf(self, topic: bytes) -> Leaf | None:
        """Where a topic stands in the tree, if anything is retained there or below."""
        leaf: Leaf | None = self.root
        for level in topic.split(b"/"):
            if leaf is None:
                return None
            leaf = leaf.child(level)
        return leaf

    def get(self, topic: bytes) -> Message | None:
        leaf = self.leaf(topic)
        return None if leaf is None else leaf.message

    def put(self, message: Message) -> None:
        leaf = self.root
        for level in message.topic.split(b"/"):
            child = leaf.child(level)
            if child is None:
                self.born += 1
                child = leaf.adopt(level, self.born)
                self.pool.retained += LEAF + len(level)
            leaf = child
        before = leaf.message
        if before is None:
            self.count += 1
        else:
            self.pool.retained -= before.size + MESSAGE
        self.pool.retained += message.size + MESSAGE
        leaf.message = message

    def price(self, message: Message) -> int:
        """Bytes that keeping a message would count, beyond what is kept of its topic."""
        more = message.size + MESSAGE
        leaf: Leaf | None = self.root
        for level in message.topic.split(b"/"):
            if leaf is not None:
                leaf = leaf.child(level)
            if leaf is None:
                more += LEAF + len(level)
        if leaf is not None and leaf.message is not None:
            more -= leaf.message.size + MESSAGE
        return more

    def remove(self, topic: bytes) -> bool:
        """Forget a topic's message; False if there was none."""
        leaf = self.leaf(topic)
        if leaf is None or leaf.message is None:
            return False
        self.pool.retained -= leaf.message.size + MESSAGE
        leaf.message = None
        self.count -= 1
        self.prune(leaf)
        return True

    def prune(self, leaf: Leaf) -> None:
        """Take out the levels, from `leaf` upwards, that nobody needs any more."""
        parent = leaf.parent
        while parent is not None and leaf.message is None and not leaf.children and leaf.pins == 0:
            parent.part(leaf)
            self.pool.retained -= LEAF + len(leaf.name)
            leaf = parent
            parent = leaf.parent


class Cursor:
    """Where a walk through the topics that a filter matches has got to.

    It goes depth first, siblings in the order in which they came. What comes while it is under way
    may be met or not; everything that was there before and still is, is met once.
    """

    def __init__(self, retained: Retained, topic_filter: bytes) -> None:
        self.retained = retained
        levels = topic_filter.split(b"/")
        self.deep = levels[len(levels) - 1] == b"#"
        if self.deep:
            levels.pop()
        self.levels = levels
        self.count = len(levels)
        self.leaf = retained.root
        self.leaf.pins += 1
        self.depth = 0

    def step(self) -> bool:
        """Go on to the next level that is matched, in whole or up to there; False at the end."""
        here = self.leaf
        child: Leaf | None = None
        if self.wild(self.depth):
            child = self.visible(here.first, self.depth)
        elif self.depth < self.count:
            child = here.child(self.levels[self.depth])
        while child is None and self.depth > 0:
            self.depth -= 1
            if self.wild(self.depth):
                child = self.visible(here.next, self.depth)
            assert here.parent is not None
            here = here.parent
        if child is None:
            self.leave()
            return False
        self.depth += 1
        self.stand(child)
        return True

    def leave(self) -> None:
        """The walk is over."""
        self.depth = 0
        self.stand(self.retained.root)

    def stand(self, leaf: Leaf) -> None:
        """Stand on another leaf; the one before may go if it is empty."""
        before = self.leaf
        leaf.pins += 1
        before.pins -= 1
        self.leaf = leaf
        if before.pins == 0 and before.message is None and not before.children:
            self.retained.prune(before)

    def message(self) -> Message | None:
        """The retained message where the cursor stands, if the filter matches it."""
        return self.leaf.message if self.depth >= self.count else None

    def wild(self, depth: int) -> bool:
        """Does the filter match any name at this depth?"""
        if depth >= self.count:
            return self.deep
        level: bytes = self.levels[depth]
        return level == b"+"

    def visible(self, leaf: Leaf | None, depth: int) -> Leaf | None:
        """Wildcards do not match a leading $ [MQTT-4.7.2-1]."""
        while leaf is not None and depth == 0 and leaf.name.startswith(b"$"):
            leaf = leaf.next
        return leaf

    def passed(self, leaf: Leaf, depth: int) -> bool:
        """Has the cursor left a leaf that is `depth` levels deep behind?"""
        here = self.leaf
        if depth < self.depth:
            for _ in range(self.depth - depth):
                assert here.parent is not None
                here = here.parent
            if here is leaf:
                return True  # it is on the way to where the cursor stands
        for _ in range(depth - self.depth):
            assert leaf.parent is not None
            leaf = leaf.parent
        while leaf.parent is not here.parent:
            assert leaf.parent is not None
            assert here.parent is not None
            leaf = leaf.parent
            here = here.parent
        return leaf.born < here.born
