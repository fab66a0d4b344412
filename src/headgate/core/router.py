"""Routing: from a topic to the flows that get it.

Filters live in a tree of levels, so that finding a topic's flows does not depend on how many other
subscriptions there are. What was found is kept as a `Route` until a subscription changes it; a
route that no longer holds is marked stale, because publishers keep their own references.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.core.flows import Flow
from headgate.core.link import Pool
from headgate.core.message import Message
from headgate.core.session import Session

CACHED_ROUTES = 100_000
"""Topics whose routes are kept; beyond it the cache begins anew."""

SHORT = 256
"""Bytes of topic that make one more of them."""

NODE = 448
"""Bytes that a level of a filter takes in the tree besides its name (`python -m bench memory`)."""


class Group:
    """The members of one shared subscription (MQTT 5 §4.8.2): each message goes to one of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: list[Flow] = []
        self.turn = 0

    def next_member(self) -> Flow:
        """Whose turn it is: connected members first, and of those the ones that can take it now."""
        count = len(self.members)
        connected: Flow | None = None
        for step in range(1, count + 1):
            index = (self.turn + step) % count
            flow = self.members[index]
            outlet = flow.session.outlet
            if outlet is None:
                continue
            if outlet.clear and flow.backlog == 0:
                self.turn = index
                return flow
            if connected is None:
                connected = flow
        if connected is not None:
            self.turn = self.members.index(connected)
            return connected
        self.turn = (self.turn + 1) % count
        return self.members[self.turn]


class Node:
    """One level of the filters: what ends here and what goes on."""

    def __init__(self) -> None:
        self.children: dict[bytes, Node] = {}
        self.flows: dict[Flow, None] = {}
        self.groups: dict[str, Group] = {}


class Route:
    """Where messages of one topic go."""

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        self.flows: list[Flow] = []
        self.groups: list[Group] = []
        self.denied: list[Flow] = []
        self.stale = False
        self.plain = True
        self.refused = False
        self.reserved = topic.startswith(b"$")
        self.captured = 0
        """Whether and how its messages go on record: `core/capturing.py`."""
        self.effort = 0
        """Levels of filters that were looked at to find it."""

    def dispatch(self, message: Message, sender: Session | None, now: float) -> None:
        """Give a message to every flow."""
        for flow in self.flows:
            if flow.no_local and flow.session is sender:  # [MQTT-3.8.3-3]
                continue
            flow.deliver(message, False, now)
        if self.groups:
            for group in self.groups:
                group.next_member().deliver(message, False, now)
        if self.denied:
            for flow in self.denied:
                flow.refuse(message, now)


class Router:
    """All subscriptions, and the routes that follow from them."""

    def __init__(self, permits: Callable[[Flow, bytes], bool], pool: Pool) -> None:
        self.permits = permits
        self.pool = pool
        self.captured: Callable[[bytes], int] | None = None
        self.root = Node()
        self.routes: dict[bytes, Route] = {}
        self.cached = 0
        """What the routes weigh: a long topic as much as several short ones."""
        self.subscriptions = 0

    def route(self, topic: bytes) -> Route:
        """The route of a topic, found anew if none is kept."""
        route = self.routes.get(topic)
        if route is None:
            route = self.find(topic)
            self.cached += 1 + len(topic) // SHORT
            if self.cached > CACHED_ROUTES:
                self.forget_routes()
                self.cached = 1 + len(topic) // SHORT
            self.routes[topic] = route
        return route

    def find(self, topic: bytes) -> Route:
        """Walk the tree."""
        route = Route(topic)
        found: list[Node] = []
        levels = topic.split(b"/")
        route.effort = collect(self.root, levels, 0, len(levels), topic.startswith(b"$"), found)
        for node in found:
            for flow in node.flows:
                if self.permits(flow, topic):
                    route.flows.append(flow)
                else:
                    route.denied.append(flow)
            for group in node.groups.values():
                self.admit(route, group)
        if self.captured is not None:
            route.captured = self.captured(topic)
        route.plain = not (route.groups or route.denied or route.reserved)
        return route

    def admit(self, route: Route, group: Group) -> None:
        """Let a group take part in a route, without members that may not have its messages."""
        allowed = [flow for flow in group.members if self.permits(flow, route.topic)]
        if len(allowed) == len(group.members):
            route.groups.append(group)
        elif allowed:
            some = Group(group.name)
            some.members = allowed
            route.groups.append(some)

    def add(self, topic_filter: bytes, group: str | None, flow: Flow) -> None:
        """A flow now subscribes to a filter, by itself or as a member of a group."""
        node = self.root
        for level in topic_filter.split(b"/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = Node()
                self.pool.standing += NODE + len(level)
            node = child
        if group is None:
            node.flows[flow] = None
        else:
            if group not in node.groups:
                node.groups[group] = Group(group)
            node.groups[group].members.append(flow)
        self.subscriptions += 1
        self.invalidate(topic_filter)

    def remove(self, topic_filter: bytes, group: str | None, flow: Flow) -> None:
        """A flow no longer subscribes; levels that nobody needs any more go."""
        node = self.root
        path = [(b"", node)]
        for level in topic_filter.split(b"/"):
            node = node.children[level]
            path.append((level, node))
        if group is None:
            del node.flows[flow]
        else:
            members = node.groups[group].members
            members.remove(flow)
            if not members:
                del node.groups[group]
        level, child = path.pop()
        while path and not (child.children or child.flows or child.groups):
            above, parent = path.pop()
            del parent.children[level]
            self.pool.standing -= NODE + len(level)
            level, child = above, parent
        self.subscriptions -= 1
        self.invalidate(topic_filter)

    def invalidate(self, topic_filter: bytes) -> None:
        """Routes that a filter may touch hold no longer."""
        if b"+" in topic_filter or b"#" in topic_filter:
            self.forget_routes()
        else:
            route = self.routes.pop(topic_filter, None)
            if route is not None:
                route.stale = True
                self.cached -= 1 + len(topic_filter) // SHORT

    def forget_routes(self) -> None:
        self.cached = 0
        for route in self.routes.values():
            route.stale = True
        self.routes.clear()


def collect(
    node: Node, levels: list[bytes], depth: int, count: int, reserved: bool, found: list[Node]
) -> int:
    """Gather the nodes whose filters match; returns how many were looked at.

    `reserved`: the topic begins with $.
    """
    looked = 1
    children = node.children
    wild = depth > 0 or not reserved  # wildcards do not match a leading $ [MQTT-4.7.2-1]
    if wild:
        child = children.get(b"#")  # `a/#` matches `a` too (§4.7.1.2)
        if child is not None:
            found.append(child)
    if depth == count:
        if node.flows or node.groups:
            found.append(node)
        return looked
    child = children.get(levels[depth])
    if child is not None:
        looked += collect(child, levels, depth + 1, count, reserved, found)
    if wild:
        child = children.get(b"+")
        if child is not None:
            looked += collect(child, levels, depth + 1, count, reserved, found)
    return looked
