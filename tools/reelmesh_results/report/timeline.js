"use strict";
// The timeline of all ranks on a canvas. A row is the spans of one rank, lane and depth; a row of
// pixels is computed for each and stretched to the row's height, so that a frame takes time in
// proportion to the pixels and not to the spans.

function pixelColour(css) {
  const [r, g, b] = css.match(/\w\w/g).map(two => parseInt(two, 16));
  return (0xff000000 | b << 16 | g << 8 | r) >>> 0;
}

function words(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size) return `${+(ns / size).toPrecision(4)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

function amount(value, unit) {
  for (const [prefix, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return `${(value / size).toPrecision(3)} ${prefix}${unit}`;
  }
  return `${value.toPrecision(3)} ${unit}`;
}

class Timeline {
  static AXIS = 24;

  constructor(view, {header, data}) {
    Object.assign(this, {view, header, data});
    this.canvas = view.querySelector("canvas");
    this.tip = view.querySelector(".tip");
    this.picked = document.getElementById("picked");
    this.total = header.length_ns / header.quantum_ns;
    this.from = 0;
    this.scroll = 0;
    this.selected = null;
    this.colours = Uint32Array.from(header.kinds, kind => pixelColour(kind.colour));
    this.strip = document.createElement("canvas");
    const levels = document.getElementById("levels");
    levels.checked = header.rows.length <= 60;
    levels.addEventListener("change", () => { this.layout(); this.showAll(); });
    this.levels = levels;
    this.listen();
    this.layout();
    this.showAll();
    new ResizeObserver(() => { this.layout(); this.request(); }).observe(view);
  }

  // Rows that are shown, their places, and the size of the canvas.
  layout() {
    const width = this.view.clientWidth, compact = width < 560;
    const before = this.total / this.scale || 0;
    const digits = `${Math.max(...this.header.rows.map(row => row.rank))}`.length;
    this.gutter = (compact ? 26 : 96) + 7 * digits;
    this.plot = Math.max(50, width - this.gutter);
    this.rows = this.header.rows.filter(row => this.levels.checked || row.depth === 0);
    const ranks = new Set(this.rows.map(row => row.rank)).size;
    const room = Math.min(0.72 * innerHeight, 560) - Timeline.AXIS - ranks * 6;
    this.high = Math.max(6, Math.min(18, Math.floor(room / this.rows.length)));
    let y = 4, rank = null;
    this.places = this.rows.map(row => {
      if (rank !== null && row.rank !== rank) y += 6;
      rank = row.rank;
      y += this.high;
      return y - this.high;
    });
    this.content = y + 6;
    this.tall = Math.max(40, Math.min(this.content, Math.round(0.72 * innerHeight)));
    const dots = devicePixelRatio || 1;
    this.canvas.width = width * dots;
    this.canvas.height = (this.tall + Timeline.AXIS) * dots;
    this.canvas.style.height = `${this.tall + Timeline.AXIS}px`;
    if (before) this.scale = Math.max(this.scale, this.plot / this.total);
    else this.scale = this.plot / this.total;
  }

  showAll() {
    this.from = 0;
    this.scale = this.plot / this.total;
    this.request();
  }

  zoom(factor, x = this.plot / 2) {
    const time = this.from + x / this.scale;
    const maximum = Math.max(this.plot / this.total, this.plot / 20);  // 20 quanta across
    this.scale = Math.min(maximum, Math.max(this.plot / this.total, this.scale * factor));
    this.from = time - x / this.scale;
    this.request();
  }

  move(pixels, down = 0) {
    this.from += pixels / this.scale;
    this.scroll += down;
    this.request();
  }

  request() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw(printed = false) {
    if (!this.canvas.width) return;  // it is not shown
    const style = getComputedStyle(document.documentElement);
    const css = name => style.getPropertyValue(name).trim();
    const {canvas, strip, rows, places, high, plot, gutter} = this;
    this.from = Math.max(0, Math.min(this.from, this.total - plot / this.scale));
    this.scroll = Math.max(0, Math.min(this.scroll, this.content - this.tall));
    const dots = canvas.width / this.view.clientWidth, context = canvas.getContext("2d");
    const across = Math.round(plot * dots), scale = this.scale * dots;
    const back = pixelColour(printed ? "#eef0f3" : css("--lane"));
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    const top = places.findIndex(y => y + high > this.scroll);
    let end = places.findIndex(y => y > this.scroll + this.tall);
    if (end < 0) end = rows.length;
    if (strip.width !== across) strip.width = across;
    if (strip.height < end - top) strip.height = end - top;
    const image = new ImageData(across, end - top), pixels = new Uint32Array(image.data.buffer);
    pixels.fill(back);
    const labels = [], shades = shadesOf(this.colours, back);
    for (let r = top; r < end; r++) {
      const line = pixels.subarray((r - top) * across, (r - top + 1) * across), found = [];
      if (rows[r].bins) paint(line, rows[r].bins, this.from, scale, shades, null);
      paint(line, rows[r].spans, this.from, scale, shades, found);
      if (high >= 12) for (const label of found) labels.push([r, ...label]);
    }
    strip.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    for (let r = top; r < end; r++) {
      const y = (Timeline.AXIS + places[r] - this.scroll) * dots;
      context.drawImage(strip, 0, r - top, across, 1, gutter * dots, Math.round(y), across,
                        Math.max(1, Math.round(high * dots) - 1));
    }
    context.setTransform(dots, 0, 0, dots, 0, 0);
    this.drawWords(context, css, labels, dots, top, end);
    this.drawSelected(context, css);
    document.documentElement.dataset.timeline = "drawn";
  }

  drawWords(context, css, labels, dots, top, end) {
    const {rows, places, high, gutter, plot} = this, axis = Timeline.AXIS;
    context.textBaseline = "middle";
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = "#fff";
    for (const [r, x, width, kind] of labels) {
      const name = this.header.kinds[kind].name, room = width / dots - 8;
      if (context.measureText(name).width > room) continue;
      context.fillText(name, gutter + x / dots + 4, axis + places[r] - this.scroll + high / 2);
    }
    context.fillStyle = css("--card");
    context.fillRect(0, 0, this.view.clientWidth, axis);
    context.fillStyle = css("--faint");
    let rank = null;
    for (let r = top; r < end; r++) {
      const y = axis + places[r] - this.scroll + high / 2;
      if (y < axis + 4) { rank = rows[r].rank; if (r > top) continue; }
      if (rows[r].rank !== rank || r === top) {
        rank = rows[r].rank;
        context.textAlign = "left";
        context.fillText(gutter > 60 ? `rank ${rank}` : rank, 8, Math.max(axis + 7, y));
      }
      if (gutter > 60 && high >= 9 && rows[r].depth === 0) {
        context.textAlign = "right";
        context.fillText(rows[r].lane, gutter - 6, y);
      }
    }
    // Ticks at 1, 2 or 5 times a power of ten.
    const ns = this.header.quantum_ns, span = plot / this.scale * ns;
    const raw = span / Math.max(2, plot / 110), power = 10 ** Math.floor(Math.log10(raw));
    const tick = [1, 2, 5, 10].find(times => times * power >= raw) * power;
    context.textAlign = "left";
    for (let t = Math.ceil(this.from * ns / tick) * tick; t <= this.from * ns + span; t += tick) {
      const x = gutter + (t / ns - this.from) * this.scale;
      context.fillStyle = css("--line");
      context.fillRect(x, axis - 6, 1, 6);
      context.fillStyle = css("--faint");
      const text = t ? words(t) : "0";
      if (x + context.measureText(text).width < gutter + plot) context.fillText(text, x + 3, 10);
    }
  }

  drawSelected(context, css) {
    if (!this.selected) return;
    const {row, place, items} = this.selected, r = this.rows.indexOf(row);
    if (r < 0) return;
    const x = (items.start[place] - this.from) * this.scale;
    const width = Math.max(2, items.length[place] * this.scale);
    const a = Math.max(0, x), b = Math.min(this.plot, x + width);
    if (b <= a) return;
    context.strokeStyle = css("--ink");
    context.lineWidth = 2;
    context.strokeRect(this.gutter + a, Timeline.AXIS + this.places[r] - this.scroll - 1, b - a,
                       this.high);
  }

  // What is at a point of the canvas: {row, place, items}, or null.
  at(x, y) {
    const time = this.from + (x - this.gutter) / this.scale;
    const r = this.places.findIndex(top => y - Timeline.AXIS + this.scroll >= top &&
                                    y - Timeline.AXIS + this.scroll < top + this.high);
    if (r < 0 || x < this.gutter) return null;
    const row = this.rows[r], slack = 3 / this.scale;
    for (const items of [row.spans, row.bins]) {
      if (!items || !items.start.length) continue;
      // The longest of those under the pointer or next to it.
      const last = firstFrom(items.start, time + slack, 0) - 1;
      let found = -1;
      for (let i = last; i >= 0 && i > last - 50; i--) {
        if (items.start[i] + items.length[i] < time - slack) continue;
        if (found < 0 || items.filled[i] > items.filled[found]) found = i;
      }
      if (found >= 0) return {row, place: found, items};
    }
    return null;
  }

  describe({row, place, items}) {
    const {header, data} = this, ns = header.quantum_ns, kind = header.kinds[items.kind[place]];
    const host = header.ranks.find(rank => rank.rank === row.rank);
    const where = `rank ${row.rank}${host ? ` on ${host.host}` : ""}, ${row.lane}`;
    const begin = `from ${words(items.start[place] * ns)}`;
    if (items === row.bins) {
      const share = Math.round(items.filled[place] / items.length[place] * 100);
      return `${words(items.length[place] * ns)} ${begin}: ${share} % busy, most of it ` +
             `${kind.name}\n${where}`;
    }
    const i = items.first + place, long = items.length[place] * ns, facts = [];
    for (const name of ["clip", "step", "layer"]) {
      if (data[name][i] >= 0) facts.push(`${name} ${data[name][i]}`);
    }
    const rates = [];
    if (data.bytes[i]) rates.push(`${amount(data.bytes[i], "B")} sent`);
    if (data.flops[i] && long) rates.push(amount(data.flops[i] / long * 1e9, "FLOP/s"));
    return [`${kind.name}: ${words(long)}, ${begin}`, facts.join(", "), rates.join(", "), where]
        .filter(Boolean).join("\n");
  }

  pick(found, x, y) {
    this.selected = found;
    this.tip.hidden = !found;
    if (found) {
      const text = this.describe(found);
      this.tip.textContent = text;
      const right = x > this.view.clientWidth / 2;
      this.tip.style.left = right ? "auto" : `${x + 14}px`;
      this.tip.style.right = right ? `${this.view.clientWidth - x + 14}px` : "auto";
      this.tip.style.top = `${Math.max(2, Math.min(y + 10, this.tall - 60))}px`;
      this.picked.textContent = text.replaceAll("\n", " · ");
    }
    this.request();
  }

  // Selects the next (+1) or previous (−1) span of the row, and brings it into view.
  step(by) {
    let {row, place} = this.selected || {};
    if (!row || this.selected.items !== row.spans) {
      row = this.rows.find(one => one.spans.start.length);
      if (!row) return;
      place = by > 0 ? firstFrom(row.spans.start, this.from, 0) - 1 : 0;
    }
    place = Math.max(0, Math.min(row.spans.start.length - 1, place + by));
    const items = row.spans, start = items.start[place], shown = this.plot / this.scale;
    if (start < this.from || start + items.length[place] > this.from + shown) {
      this.from = start + items.length[place] / 2 - shown / 2;
    }
    const y = this.places[this.rows.indexOf(row)];
    if (y < this.scroll || y + this.high > this.scroll + this.tall) this.scroll = y - 20;
    const x = this.gutter + (start - Math.max(0, this.from)) * this.scale;
    this.pick({row, place, items}, Math.max(this.gutter, x), y - this.scroll + Timeline.AXIS);
  }

  listen() {
    const {canvas} = this, pointers = new Map();
    const place = event => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      if (event.shiftKey) this.move(event.deltaY);
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(event.deltaX);
      else this.zoom(Math.exp(-event.deltaY / 300), place(event)[0] - this.gutter);
    }, {passive: false});
    canvas.addEventListener("pointerdown", event => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      this.moved = false;
    });
    canvas.addEventListener("pointermove", event => {
      const now = place(event), before = pointers.get(event.pointerId);
      if (!before) {
        this.pick(this.at(...now), ...now);
        return;
      }
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(pair => pair[1]);
      if (others.length) {
        const [x] = others[0], far = Math.max(8, Math.abs(before[0] - x));
        this.zoom(Math.max(8, Math.abs(now[0] - x)) / far, (now[0] + x) / 2 - this.gutter);
      } else if (this.moved || Math.hypot(now[0] - before[0], now[1] - before[1]) > 3) {
        this.moved = true;
        this.tip.hidden = true;
        this.move(before[0] - now[0], event.pointerType === "mouse" ? before[1] - now[1] : 0);
      } else {
        return;
      }
      pointers.set(event.pointerId, now);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, event => {
        if (!this.moved && name === "pointerup") this.pick(this.at(...place(event)),
                                                           ...place(event));
        pointers.delete(event.pointerId);
      });
    }
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("keydown", event => {
      const actions = {
        "+": () => this.zoom(1.6), "=": () => this.zoom(1.6), "-": () => this.zoom(1 / 1.6),
        "0": () => this.showAll(), Home: () => this.showAll(),
        ArrowLeft: () => this.move(-this.plot / 8), ArrowRight: () => this.move(this.plot / 8),
        ArrowUp: () => this.move(0, -60), ArrowDown: () => this.move(0, 60),
        n: () => this.step(1), p: () => this.step(-1),
        Escape: () => { this.pick(null); this.picked.textContent = ""; canvas.blur(); }};
      const action = actions[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action();
    });
    const buttons = {"zoom-in": () => this.zoom(2), "zoom-out": () => this.zoom(0.5),
                     "zoom-all": () => this.showAll()};
    for (const [id, action] of Object.entries(buttons)) {
      document.getElementById(id).addEventListener("click", action);
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.request());
    addEventListener("beforeprint", () => this.draw(true));
    addEventListener("afterprint", () => this.request());
  }
}

let timeline = null;
{
  const view = document.getElementById("view");
  const text = document.getElementById("timeline-data").textContent;
  if (view && text) {
    if (!("DecompressionStream" in window)) {
      document.documentElement.dataset.timeline = "unsupported";
      view.textContent = "This browser is too old for the timeline (it has no " +
                         "DecompressionStream). Everything else is here.";
    } else {
      readTimeline(text).then(found => { timeline = new Timeline(view, found); }).catch(error => {
        document.documentElement.dataset.timeline = "failed";
        view.textContent = `The timeline cannot be drawn: ${error.message}`;
      });
    }
  }
}
