#!/usr/bin/python3
"""Tests of the page that tools/reelmesh-report makes: its content, and how Chromium shows it.

Ends with status 77 (skipped) if Debian's packages for it are not installed. What needs ffmpeg or
Chromium is skipped where they are not installed. With REELMESH_PICTURES=FOLDER the pictures that
the browser takes of the page stay there.
"""
import base64
import html.parser
import io
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import unittest
import zlib

try:
    import h5py
    import matplotlib  # noqa: F401
    import numpy as np
    from PIL import Image
except ImportError as missing:
    print(f"report_page_test: passed over: {missing}")
    sys.exit(77)

import browser
import results_support as support
from report_support import FFMPEG, SPANS, Report, needs_ffmpeg, trace_of

needs_browser = unittest.skipUnless(browser.PROGRAM, "Chromium is not installed")
LAYOUT = pathlib.Path(__file__).with_name("page_layout.js").read_text()
HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(1)"> \' " & </noscript> \x07'


class Elements(html.parser.HTMLParser):
    """What a page has: elements with their attributes, and the text outside of scripts."""

    def __init__(self, page):
        super().__init__()
        self.found, self.words, self._inside = [], "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data):
        if not self._inside:
            self.words += data

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def payload(page):
    """Header of the timeline, and the columns as bytes."""
    packed = re.search(r'id="timeline-data">([^<]*)<', page).group(1)
    raw = zlib.decompress(base64.b64decode(packed))
    size = struct.unpack("<I", raw[:4])[0]
    return json.loads(raw[4:4 + size]), raw[4 + size:]


class Page(Report):
    def check_self_contained(self, page, allowed=("data:", "#", "clips/", "report_files/")):
        elements = Elements(page)
        for tag, attributes in elements.found:
            for name, value in attributes.items():
                if name in ("src", "href", "poster", "xlink:href"):
                    self.assertTrue(value.startswith(allowed), (tag, name, value[:80]))
                self.assertFalse(name.startswith("on"), (tag, name))
        self.assertNotIn("@import", page)
        self.assertFalse(re.search(r"url\((?!#)", page))
        self.assertFalse(re.search(r"https?://", page))
        self.assertIn("default-src 'none'", next(
            one["content"] for one in elements.all("meta") if "http-equiv" in one))
        return elements

    def test_one_page_with_everything(self):
        support.write_job(self.out, 3, 2, 2000, states={1: ("failed", "rank 0: out of memory")})
        page = self.page()
        elements = self.check_self_contained(page)
        self.assertFalse((self.out / "report_files").exists())
        if FFMPEG:
            videos = elements.all("video")
            self.assertEqual(len(videos), 2)
            for video in videos:
                self.assertTrue(video["src"].startswith("data:video/mp4;base64,"))
                self.assertLessEqual({"loop", "muted", "controls", "playsinline"}, video.keys())
        for part in ("a square moves to the right, 0", "seed 42", "rank 0: out of memory",
                     "transformer_block", "node-a", "weights hash", "SLURM_JOB_ID=17",
                     "phased: all ranks do each stage in turn", "prediction of the plan"):
            self.assertIn(part, elements.words)
        # Without JavaScript there is a timeline too, and identifiers are unique.
        self.assertIn('<svg class="static"', page)
        names = [one["id"] for _, one in elements.found if "id" in one]
        self.assertEqual(len(names), len(set(names)))

    def test_paths_may_be_relative(self):
        support.write_job(self.out, 1, 1, 100)
        before = pathlib.Path.cwd()
        os.chdir(self.out.parent)
        try:
            self.expect(0, self.out.name)
            self.expect(0, self.out.name, "--to", "page.html")
        finally:
            os.chdir(before)
        self.check_self_contained((self.out / "report.html").read_text())
        page = (self.out.parent / "page.html").read_text()
        self.check_self_contained(page, ("data:", "#", f"{self.out.name}/clips/"))
        self.assertEqual([path.name for path in self.out.parent.rglob(".report_files*")], [])

    def test_nothing_of_a_file_becomes_markup(self):
        requests = [{"prompt": HOSTILE, "seed": 1}, {"prompt": HOSTILE, "frames": HOSTILE,
                                                     "height": HOSTILE, "width": HOSTILE}]
        support.write_clip(self.out, 0, support.moving_square(5, 16, 16, 0), HOSTILE,
                           negative_prompt=HOSTILE, dtype=HOSTILE)
        shutil.copy(self.out / "clips/000000.h5", self.out / "clips/000001.h5")
        support.write_index(self.out, requests, {1: ("failed", "</td><script>alert(2)</script>")},
                            options=f"model.path = {HOSTILE}\n", plan=HOSTILE, version=HOSTILE)
        (self.out / "clips/000001.h5").unlink()
        rows = [(*SPANS[0][:1], "<lane>", "<b>&name", *SPANS[0][3:])]
        trace_of(self.out, rows, level=HOSTILE)
        elements = self.check_self_contained(self.page())
        self.assertEqual(len(elements.all("script")), 3)
        self.assertEqual(len(elements.all("noscript")), 1)
        self.assertFalse(elements.all("lane") + [
            one for one in elements.all("b") if not one["style"].startswith("left:")])
        self.assertIn('</script><script>alert(1)</script><img src=x onerror="alert(1)">',
                      elements.words)

    def test_the_timeline_has_each_span(self):
        self.job()
        header, columns = payload(self.page())
        self.assertEqual((header["spans"], header["bins"], header["quantum_ns"]), (9, 0, 1))
        self.assertEqual([(row["rank"], row["lane"], row["depth"], row["spans"])
                          for row in header["rows"]],
                         [(0, "compute", 0, 1), (0, "compute", 1, 1), (0, "compute", 2, 1),
                          (0, "exchange", 0, 1), (0, "file", 0, 1), (0, "waiting", 0, 1),
                          (1, "compute", 0, 2), (1, "exchange", 0, 1)])

        def column(number):
            planes = np.frombuffer(columns, np.uint8, 36, number * 36).reshape(4, 9)
            return np.ascontiguousarray(planes.T).view("<i4").ravel()

        self.assertEqual(np.cumsum(column(0)).tolist(), [0, 10, 20, 45, 120, 150, 0, 100, 90])
        self.assertEqual(column(1).tolist(), [100, 50, 20, 10, 30, 50, 90, 100, 10])

    def test_too_many_spans_become_intervals(self):
        """What is covered in all intervals is the sum of the durations; long spans are kept."""
        from reelmesh_results.report import timeline, totals
        from reelmesh_results.trace import Trace
        support.write_trace(self.out, ranks=3, spans=6000)
        before, timeline.MAX_SPANS = timeline.MAX_SPANS, 200
        try:
            with Trace(self.out / "trace.h5") as trace:
                extent = totals.extent(trace)
                rows = timeline.Rows(extent, trace)
                sums = totals.of(trace, rows)
                spans, columns = rows.done()
                self.assertFalse(rows.whole)
                steps = int(sums.sums["calls"][:, 0].sum())
                self.assertEqual(sum(b - a for a, b in spans.values()), steps)
                self.assertEqual(set(columns["kind"]), {0})
                lane = trace.lanes.texts.index("compute")
                share = rows.binned[2, lane, 2][0] / 255
                covered = share.sum() * extent.length / rows.bins
                inner = [kind for kind, pair in enumerate(sums.kinds.pairs)
                         if trace.names.texts[pair[1]] in ("product", "norm", "attention")]
                expected = sums.sums["ns"][2, inner].sum()
                self.assertLess(abs(covered / expected - 1), 0.01)
        finally:
            timeline.MAX_SPANS = before

    @needs_ffmpeg
    def test_many_videos_are_beside_the_page(self):
        noise = np.random.default_rng(1)
        for i in range(2):
            support.write_clip(self.out, i, noise.integers(0, 255, (28, 400, 600, 3), np.uint8))
        support.write_index(self.out, [{"prompt": "noise"}] * 2, trace=False)
        elements = self.check_self_contained(self.page())
        self.assertEqual([one["src"] for one in elements.all("video")],
                         ["report_files/000000.mp4", "report_files/000001.mp4"])
        self.assertLess((self.out / "report.html").stat().st_size, 200_000)
        for one in elements.all("video"):
            for name in ("src", "poster"):
                self.assertTrue((self.out / one[name]).exists())
        # Elsewhere, with links back to the clips.
        other = self.folder / "pages/all.html"
        self.expect(0, self.out, "--to", other)
        self.assertTrue((other.parent / "all_files/000001.mp4").exists())
        self.assertIn('href="../out/clips/000000.h5"', other.read_text())
        # A folder of that name with other files is not touched.
        (other.parent / "all_files/notes.txt").write_text("keep me")
        self.refused(73, f"{other.parent / 'all_files'}: cannot write it", self.out, "--to", other)
        self.assertTrue((other.parent / "all_files/notes.txt").exists())
        # Of fewer clips: nothing of the first page stays.
        shutil.rmtree(self.out / "clips")
        self.job(rows=None)
        self.page()
        self.assertFalse((self.out / "report_files").exists())

    @needs_ffmpeg
    def test_a_clip_that_is_damaged_within_does_not_move_the_films_of_others(self):
        for i in range(4):
            support.write_clip(self.out, i, np.full((5, 32, 32, 3), 60 * i + 30, np.uint8))
        support.write_index(self.out, [{"prompt": f"{i}"} for i in range(4)], trace=False)
        path = self.out / "clips/000001.h5"
        with h5py.File(path) as file:
            place = file["video"].id.get_chunk_info(3).byte_offset
        raw = bytearray(path.read_bytes())
        raw[place + 10] ^= 0xFF
        path.write_bytes(raw)
        self.refused(65, "000001.h5: /video cannot be read", self.out)
        elements = Elements((self.out / "report.html").read_text())
        self.assertIn("damaged", elements.words)
        levels = []
        for video in elements.all("video"):
            file = self.folder / "one.mp4"
            file.write_bytes(base64.b64decode(video["src"].split(",")[1]))
            raw = subprocess.run(["ffmpeg", "-v", "error", "-i", file, "-f", "rawvideo", "-pix_fmt",
                                  "gray", "-"], check=True, capture_output=True, timeout=60).stdout
            frames = np.frombuffer(raw, np.uint8).reshape(5, -1)
            levels.append(round(float(frames.mean()) / 60 - 0.5))
        self.assertEqual(levels, [0, 2, 3])

    def test_without_ffmpeg_there_are_pictures(self):
        self.job(2)
        done = self.call(self.out, environment={"PATH": str(self.folder)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("ffmpeg is not installed", done.stderr)
        elements = Elements((self.out / "report.html").read_text())
        self.assertEqual((len(elements.all("video")), len(elements.all("img"))), (0, 2))
        self.assertIn("ffmpeg was not installed", elements.words)

    def test_jobs_that_have_less(self):
        self.job(0, rows=None)
        self.assertIn("The job has no clips.", self.page())
        self.job(1, rows=[], complete=False, status="unfinished", end="")
        self.assertIn("The trace has no spans yet.", self.page())
        with h5py.File(self.out / "clips/000000.h5", "a") as file:
            del file["video"]
        self.assertIn("The clips have no video", self.page())


@needs_browser
class InBrowser(Report):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def opened(self):
        self.expect(0, self.out)
        self.browser.open(self.out / "report.html", browser.DRAWN)
        self.assertEqual(self.browser.errors, [])

    def evaluate(self, expression):
        return self.browser.evaluate(expression)

    def press(self, key, text=None, said=False):
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", key=key,
                          text=key if text is None else text)
        return self.evaluate("document.getElementById('picked').textContent") if said else None

    def test_it_fits_every_width_in_light_and_dark(self):
        support.write_job(self.out, 5, 4, 3000, states={1: ("failed", "x" * 110)})
        pictures = pathlib.Path(os.environ.get("REELMESH_PICTURES", self.folder))
        self.expect(0, self.out)
        colours = set()
        for width in (390, 820, 1440):
            for dark in (False, True):
                self.browser.screen(width, dark=dark)
                self.browser.open(self.out / "report.html", browser.DRAWN)
                self.assertEqual(self.browser.errors, [])
                self.assertEqual(self.evaluate("document.documentElement.scrollWidth"), width)
                path = pictures / f"report_{width}_{'dark' if dark else 'light'}.png"
                self.browser.picture(path)
                with Image.open(path) as picture:
                    self.assertEqual(picture.width, width)
                    colours.add(picture.convert("RGB").getpixel((2, 2)))
        self.assertEqual(len(colours), 2)
        # Nothing but the page itself and what is in it was asked for.
        self.assertEqual([one for one in self.browser.requests
                          if not one.startswith(("data:", "file:"))], [])

    def test_all_kinds_of_jobs_fit(self):
        """A full-size, a failed, a simulated and a training job; tiles hold their figures, what
        scrolls says so, the plan is not wrapped, and texts are legible: see page_layout.js."""
        support.write_job(self.folder / "full", 1, 2, 600, frames=49, height=480, width=720)
        support.write_job(self.folder / "failed", 4, 2, 600, status="failed",
                          states={1: ("failed", "rank 1: the latents after step 3 of 20 " * 3),
                                  2: ("saved", ""), 3: ("missing", "")})
        support.write_job(self.folder / "simulated", 0, 2, 600)
        support.write_index(self.folder / "simulated", [{"prompt": "p", "seed": 1}] * 200,
                            {i: ("missing", "") for i in range(200)}, status="simulated",
                            plan="stage " + "wide " * 40 + "\n", measured_seconds=1234.0)
        support.write_training(self.folder / "training", steps=100)
        pictures = pathlib.Path(os.environ.get("REELMESH_PICTURES", self.folder))
        for name in ("full", "failed", "simulated", "training"):
            self.expect(0, self.folder / name)
            for width in (420, 1400):
                colours = []
                for dark in (False, True):
                    self.browser.screen(width, dark=dark)
                    self.browser.open(self.folder / name / "report.html", browser.DRAWN)
                    self.assertEqual(self.browser.errors, [])
                    self.assertEqual(self.evaluate("document.documentElement.scrollWidth"), width)
                    self.assertEqual(self.evaluate(
                        "[...document.querySelectorAll('.figures dd')].filter(one => "
                        "one.scrollWidth > one.clientWidth || one.offsetHeight > "
                        "1.5 * parseFloat(getComputedStyle(one).fontSize)).length"), 0, width)
                    self.assertEqual(self.evaluate(LAYOUT), [], (name, width, dark))
                    path = pictures / f"{name}_{width}_{'dark' if dark else 'light'}.png"
                    self.browser.picture(path)
                    with Image.open(path) as picture:
                        colours.append(sum(picture.convert("L").resize((1, 1)).getdata()))
                self.assertGreater(colours[0], colours[1] + 100)
            if name == "simulated":
                self.assertEqual(self.evaluate("document.querySelectorAll('#clips tr').length"), 0)
                self.browser.screen(420)
                self.assertGreater(*self.evaluate("(one => [one.scrollWidth, one.clientWidth])("
                                                  "document.querySelector('#plan pre'))"))
                self.assertTrue(self.shadow_at_the_right("#plan pre"))
                self.assertFalse(self.shadow_at_the_right("#options pre"))

    def test_what_is_hard_to_read_is_found(self):
        self.job(1)
        self.browser.screen(1440)
        self.opened()
        self.assertEqual(self.evaluate(LAYOUT), [])
        for change, text in (
                ("document.documentElement.style.setProperty('--faint', '#b0b0b0')", "contrast"),
                ("document.querySelector('h1').style.marginBottom = '-1.5rem'", "overlaps")):
            self.opened()
            self.evaluate(change)
            self.assertTrue(any(text in what for _, what in self.evaluate(LAYOUT)), text)

    def shadow_at_the_right(self, element):
        """Whether the right edge of an element in view is darker than what is left of it."""
        box = self.evaluate(f"""(() => {{
          const one = document.querySelector({element!r});
          one.scrollIntoView({{behavior: "instant", block: "center"}});
          const box = one.getBoundingClientRect();
          return [box.right + scrollX, box.bottom + scrollY];
        }})()""")
        png = self.browser.pixels({"x": box[0] - 40, "y": box[1] - 8, "width": 40, "height": 4,
                                   "scale": 1})
        with Image.open(io.BytesIO(png)) as picture:
            row = [sum(picture.convert("RGB").getpixel((x, 1))) for x in range(picture.width)]
        return min(row[-6:-2]) < row[2] - 40

    def test_the_timeline_shows_numbers(self):
        self.job()
        self.browser.screen(1440)
        self.opened()
        self.assertEqual(self.evaluate("timeline.header.spans"), 9)
        said = self.evaluate("""(() => {
            const row = timeline.rows.find(row => row.rank === 0 && row.depth === 2);
            const y = timeline.places[timeline.rows.indexOf(row)] + 24 + 3;
            timeline.pick(timeline.at(timeline.gutter + 30 * timeline.scale, y), 300, y);
            return document.getElementById("picked").textContent; })()""")
        self.assertEqual(said, "product: 20 ns, from 20 ns · clip 0, step 0, layer 0 · "
                               "50.0 GFLOP/s · rank 0 on node-a, compute")
        # By keyboard: zoom, move, the next span, all.
        self.evaluate("document.getElementById('canvas').focus()")
        before = self.evaluate("timeline.scale")
        self.press("+")
        self.assertAlmostEqual(self.evaluate("timeline.scale") / before, 1.6, places=5)
        middle = self.evaluate("timeline.from")
        self.press("ArrowRight", "")
        self.assertGreater(self.evaluate("timeline.from"), middle)
        self.press("0")
        self.evaluate("timeline.pick(null)")
        self.assertIn("denoise_step: 100 ns", self.press("n", said=True))
        self.press("0")
        self.assertEqual(self.evaluate("timeline.scale"), before)
        # The wheel zooms where the pointer is.
        box = self.evaluate("""(() => { const canvas = document.getElementById("canvas");
            canvas.scrollIntoView({block: "center", behavior: "instant"});
            const box = canvas.getBoundingClientRect(); return [box.left, box.top]; })()""")
        self.browser.call("Input.dispatchMouseEvent", type="mouseWheel", x=box[0] + 700,
                          y=box[1] + 40, deltaX=0, deltaY=-240)
        self.browser.wait(f"timeline.scale > {before * 1.5}")

    def test_pixels_have_the_colours_of_their_spans(self):
        self.job()
        self.browser.screen(1440)
        self.opened()
        found = self.evaluate("""(() => {
            const canvas = document.getElementById("canvas"), context = canvas.getContext("2d");
            timeline.draw();  // a change of size has cleared it until the next frame
            return timeline.rows.map((row, r) => {
              const time = row.spans.start[0] + row.spans.length[0] * 0.75;
              const pixel = context.getImageData(timeline.gutter + time * timeline.scale,
                                                 24 + timeline.places[r] + 3, 1, 1).data;
              const kind = timeline.header.kinds[row.spans.kind[0]];
              return [kind.colour, "#" + [...pixel.slice(0, 3)].map(
                  value => value.toString(16).padStart(2, "0")).join("")]; }); })()""")
        self.assertEqual(len(found), 8)
        for expected, drawn in found:
            self.assertEqual(expected, drawn)
        # Where a row has no span there is none, also when its last one is to the left.
        self.assertEqual(self.evaluate("""(() => {
            const context = document.getElementById("canvas").getContext("2d");
            const row = timeline.rows.findIndex(row => row.rank === 0 && row.lane === "exchange");
            timeline.zoom(2, 0.7 * timeline.plot);  // from 70 ns to 170 ns
            timeline.draw();
            return [...Array(10).keys()].map(i => [...context.getImageData(
                timeline.gutter + 5 + i * timeline.plot / 11, 24 + timeline.places[row] + 3, 1, 1
                ).data].join()); })()"""), ["238,240,243,255"] * 10)

    def test_a_long_span_that_begins_in_the_pixel_of_short_ones_is_drawn(self):
        short = [(0, "compute", "norm", -1, -1, -1, 2 * i, 1, 0, 0, 0) for i in range(50)]
        self.job(rows=[*short, (0, "compute", "decode", -1, -1, -1, 100, 1_000_000, 0, 0, 0)])
        self.browser.screen(1440)
        self.opened()
        self.assertEqual(self.evaluate("""(() => { timeline.draw();
            const context = document.getElementById("canvas").getContext("2d");
            return [...context.getImageData(timeline.gutter + timeline.plot / 2,
                                            24 + timeline.places[0] + 3, 1, 1).data].join();
            })()"""), "35,135,94,255")

    def test_the_filter_and_the_button(self):
        support.write_job(self.out, 60, 1, 100, frames=2, height=16, width=16)
        self.browser.screen(1440)
        self.opened()
        cards = "document.querySelectorAll('.card').length"
        self.assertEqual(self.evaluate(cards), 24)
        self.evaluate("document.getElementById('more').click()")
        self.assertEqual(self.evaluate(cards), 60)
        self.evaluate("""(() => { const filter = document.getElementById("filter");
            filter.value = "SQUARE 55"; filter.dispatchEvent(new Event("input")); })()""")
        # The prompt of clip 55, and the seed of clip 13.
        self.assertEqual(self.evaluate("""[...document.querySelectorAll(".card h3")].map(
            one => one.textContent)"""), ["13", "55"])
        self.assertEqual(self.evaluate("document.getElementById('filter-count').value"),
                         "2 of 60 clips")
        self.assertEqual(self.browser.errors, [])

    @needs_ffmpeg
    def test_videos_play(self):
        self.job(2)
        self.browser.screen(1440)
        self.opened()
        self.browser.wait("[...document.querySelectorAll('video')].every(one => "
                          "one.currentTime > 0 && !one.paused && one.loop && one.muted)", 20)

    def test_without_javascript(self):
        support.write_job(self.out, 30, 2, 300, frames=2, height=16, width=16)
        self.expect(0, self.out)
        self.browser.screen(390)
        self.browser.call("Emulation.setScriptExecutionDisabled", value=True)
        try:
            self.browser.call("Page.navigate", url=(self.out / "report.html").as_uri())
            self.browser.wait("document.readyState === 'complete'")
            self.assertEqual(self.evaluate("document.querySelectorAll('.card').length"), 30)
            for selector in ("svg.static", "table", "svg.chart", ".card"):
                high = f"document.querySelector('{selector}').getBoundingClientRect().height"
                self.assertGreater(self.evaluate(high), 20, selector)
            self.assertEqual(self.evaluate(
                "document.getElementById('drawing').getBoundingClientRect().height"), 0)
            self.assertEqual(self.evaluate("document.documentElement.scrollWidth"), 390)
        finally:
            self.browser.call("Emulation.setScriptExecutionDisabled", value=False)

    def test_memory_of_a_rank_is_chosen(self):
        support.write_job(self.out, 1, 3, 300, frames=2, height=16, width=16)
        self.opened()
        self.evaluate("""(() => { const choice = document.getElementById("memory-rank");
            choice.value = "2"; choice.dispatchEvent(new Event("change")); })()""")
        self.assertEqual(self.evaluate("""[...document.querySelectorAll("[data-rank]")].filter(
            one => one.offsetHeight).map(one => one.dataset.rank)"""), ["2"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
