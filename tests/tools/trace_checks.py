"""What a file in the Trace Event Format must fulfil so that Perfetto draws it as it is meant."""
import collections
import json
import pathlib

import jsonschema

SCHEMA = json.loads((pathlib.Path(__file__).parent / "trace_event.schema.json").read_text())


def ns(microseconds):
    return round(microseconds * 1000)


def slices(events):
    """(pid, tid) → [(start, end, event)] in ns, sorted, an enclosing one before those in it."""
    found = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = ns(event["ts"])
            found[event["pid"], event["tid"]].append((start, start + ns(event["dur"]), event))
    for one in found.values():
        one.sort(key=lambda slice: (slice[0], -slice[1]))
    return found


def named(events, kind):
    """(pid, tid) → name of a thread, or pid → name of a process."""
    return {(event["pid"], event["tid"]) if kind == "thread" else event["pid"]:
            event["args"]["name"] for event in events if event["name"] == f"{kind}_name"}


def check(test, document):
    """Checks a whole file; `test` is a unittest.TestCase."""
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    events = document["traceEvents"]
    _check_names(test, events)
    found = slices(events)
    for thread, one in found.items():
        _check_nesting(test, thread, one)
    _check_flows(test, events, found)


def _check_names(test, events):
    processes, threads = named(events, "process"), named(events, "thread")
    test.assertEqual(len({tid for _, tid in threads}), len(threads))  # different in all processes
    for event in events:
        test.assertIn(event["pid"], processes, event)
        if event["ph"] in "Xsf":
            test.assertIn((event["pid"], event["tid"]), threads, event)
    names = list(zip(((pid, name) for (pid, _), name in threads.items()), threads))
    test.assertEqual(len({name for name, _ in names}), len(names))  # no name twice in a process


def _check_nesting(test, thread, one):
    ends = []
    for start, end, event in one:
        while ends and ends[-1] <= start:
            ends.pop()
        test.assertTrue(not ends or end <= ends[-1], f"{thread}: {event} ends after what holds it")
        ends.append(end)


def _check_flows(test, events, found):
    flows = collections.defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            test.assertNotIn(event["ph"], flows[event["id"]], event)
            flows[event["id"]][event["ph"]] = event
    for pair in flows.values():
        test.assertEqual(set(pair), {"s", "f"})
        test.assertLessEqual(pair["s"]["ts"], pair["f"]["ts"])
        test.assertEqual((pair["s"]["cat"], pair["s"]["name"]),
                         (pair["f"]["cat"], pair["f"]["name"]))
        for event in pair.values():
            at = ns(event["ts"])
            test.assertTrue(any(start <= at < end for start, end, _ in
                                found[event["pid"], event["tid"]]), f"{event} is in no slice")
