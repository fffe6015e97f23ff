"""Counters of a rank as counter events of the Trace Event Format."""
import json

OTHERS = {"BYTES_SENT": ("bytes sent", "total"), "CLIPS_WAITING": ("clips waiting", "clips")}


class Counters:
    """Makes events of rows that come sorted by time. Memory: an event has all purposes of a place,
    so that chrome://tracing stacks them."""

    def __init__(self, pid, names):
        """names: number → name of a counter."""
        self._pid, self._names = pid, names
        self._now = {}  # name of an event → its present arguments
        self._sent = None  # (time, bytes) of the last row of BYTES_SENT

    def events(self, block):
        """block: arrays counter, time_ns, value and max."""
        changed, at = {}, None
        for counter, time, value, most in zip(*(block[name].tolist() for name in
                                                ("counter", "time_ns", "value", "max"))):
            if time != at:
                yield from self._of(changed, at)
                changed, at = {}, time
            name = self._names.get(counter, f"counter {counter}")
            place, _, purpose = name.partition("_")
            if place in ("HOST", "DEVICE"):
                title = f"{place.lower()} memory"
                for event, number in ((f"{title} (bytes)", value),
                                      (f"{title}, largest since the last sample (bytes)", most)):
                    changed[event] = self._now.setdefault(event, {})
                    changed[event][purpose.lower()] = number
            else:
                event, argument = OTHERS.get(name, (name.lower(), "value"))
                changed[event] = {argument: value}
            if name == "BYTES_SENT":
                yield from self._rate(time, value)
        yield from self._of(changed, at)

    def _rate(self, time, sent):
        """The rate between two rows holds from the first of them on."""
        if self._sent is not None and time > self._sent[0]:
            rate = (sent - self._sent[1]) / (time - self._sent[0]) * 1e9
            yield self._event("sending (bytes/s)", self._sent[0], {"rate": round(rate, 1)})
        self._sent = (time, sent)

    def last(self):
        if self._sent is not None:
            yield self._event("sending (bytes/s)", self._sent[0], {"rate": 0})

    def _of(self, changed, time):
        for name, arguments in changed.items():
            yield self._event(name, time, arguments)

    def _event(self, name, time, arguments):
        return json.dumps({"ph": "C", "pid": self._pid, "tid": self._pid, "name": name,
                           "ts": time / 1000, "args": arguments})
