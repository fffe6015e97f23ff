"""Arrows from the sends of messages to their receives: flow events of the Trace Event Format."""
import numpy as np

_KEY = ("channel", "sender", "receiver", "number")  # equal for a send and its receive
_END = np.dtype([("channel", "i8"), ("sender", "i4"), ("receiver", "i4"), ("number", "i8"),
                 ("side", "i1"), ("thread", "i4"), ("at", "i8")])
BLOCK = 1 << 16


def microseconds(ns):
    return f"{ns // 1000}.{ns % 1000:03}" if ns >= 0 else "-" + microseconds(-ns)


class Arrows:
    """Notes the ends of arrows rank by rank, 37 bytes for each, and pairs them when all are there.
    `drawn`: number of arrows. `backwards`: messages without an arrow because they are received
    before they are sent, according to the clocks of the ranks."""

    def __init__(self, process):
        """process(rank): its process id."""
        self._process = process
        self._ends = []
        self.drawn = self.backwards = 0

    def note(self, side, block, threads, at):
        """Notes the ends of arrows. side: 0 for sends, 1 for receives. block: rows of /messages.
        threads, at: thread ids and times, within slices."""
        ends = np.zeros(len(at), _END)
        ends["channel"], ends["number"] = block["channel"], block["number"]
        ends["sender"], ends["receiver"] = (block[name] for name in (
            ("rank", "peer") if side == 0 else ("peer", "rank")))
        ends["side"], ends["thread"], ends["at"] = side, threads, at
        self._ends.append(ends)

    def events(self):
        """Flow events of the messages of which both ends are drawn."""
        if not self._ends:
            return
        ends = np.concatenate(self._ends)
        # The ends of a message follow each other: the send, then the receive.
        ends = ends[np.lexsort([ends[name] for name in ("side", *reversed(_KEY))])]
        pairs = (ends["side"][:-1] == 0) & (ends["side"][1:] == 1)
        for name in _KEY:
            pairs &= ends[name][1:] == ends[name][:-1]
        backwards = pairs & (ends["at"][1:] < ends["at"][:-1])
        self.backwards = int(backwards.sum())
        sends = np.flatnonzero(pairs & ~backwards)
        self.drawn = len(sends)
        for part in np.array_split(sends, len(sends) // BLOCK + 1):
            yield from self._pairs(ends[part], ends[part + 1], int(part[0]) if len(part) else 0)

    def _pairs(self, sends, receives, first):
        """first: a number that is different for each pair."""
        columns = (sends["sender"], sends["receiver"], sends["thread"], receives["thread"],
                   sends["at"], receives["at"])
        for i, (sender, receiver, thread, other, at, then) in enumerate(
                zip(*(column.tolist() for column in columns)), first + 1):
            yield _event("s", i, self._process(sender), thread, at)
            yield _event("f", i, self._process(receiver), other, then)


def _event(phase, number, pid, tid, at):
    # "bp": a receive is bound to the slice in which it lies, not to the next.
    bind = '"bp":"e",' if phase == "f" else ""
    return (f'{{"ph":"{phase}",{bind}"id":{number},"cat":"messages","name":"message",'
            f'"pid":{pid},"tid":{tid},"ts":{microseconds(at)}}}')
