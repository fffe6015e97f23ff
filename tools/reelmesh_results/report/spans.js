"use strict";
// What the timeline draws: spans by row, and a row of pixels of them.

// Reads what timeline.py wrote: a header, then columns of numbers with their bytes in planes.
async function readTimeline(text) {
  const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let at = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, at)));
  const column = (Type, count) => {
    const size = Type.BYTES_PER_ELEMENT, found = new Uint8Array(count * size);
    for (let plane = 0; plane < size; plane++) {
      for (let i = 0; i < count; i++) found[i * size + plane] = bytes[at++];
    }
    return new Type(found.buffer);
  };
  const summed = column => {
    for (let i = 1; i < column.length; i++) column[i] += column[i - 1];
    return column;
  };
  const n = header.spans;
  const data = n ? {
    start: summed(column(Int32Array, n)), duration: column(Int32Array, n),
    kind: column(Uint8Array, n), clip: summed(column(Int32Array, n)),
    step: summed(column(Int32Array, n)), layer: summed(column(Int32Array, n)),
    bytes: column(Float32Array, n), flops: column(Float32Array, n)} : {};
  let first = 0;
  for (const row of header.rows) {
    row.spans = items(n ? data.start.subarray(first, first + row.spans) : new Int32Array(0),
                      n ? data.duration.subarray(first, first + row.spans) : new Int32Array(0),
                      n ? data.kind.subarray(first, first + row.spans) : new Uint8Array(0), first);
    first += row.spans.start.length;
  }
  if (header.bins) addBins(header, bytes.subarray(at));
  return {header, data};
}

// Things of a row, sorted by start. filled: time that each covers; its sums are by place.
function items(start, filled, kind, first) {
  const sum = new Float64Array(start.length + 1);
  for (let i = 0; i < start.length; i++) sum[i + 1] = sum[i] + filled[i];
  return {start, length: filled, filled, kind, sum, first};
}

function addBins(header, bytes) {
  const {rows, bins} = header, width = header.length_ns / header.quantum_ns / bins;
  rows.forEach((row, number) => {
    const share = bytes.subarray(number * bins, (number + 1) * bins);
    const kind = bytes.subarray((rows.length + number) * bins, (rows.length + number + 1) * bins);
    const start = new Float64Array(bins), filled = new Float64Array(bins);
    const kinds = new Uint8Array(bins);
    let n = 0;
    for (let i = 0; i < bins; i++) {
      if (!share[i]) continue;
      start[n] = i * width;
      filled[n] = share[i] / 255 * width;
      kinds[n++] = kind[i];
    }
    row.bins = items(start.subarray(0, n), filled.subarray(0, n), kinds.subarray(0, n), 0);
    row.bins.length = new Float64Array(n).fill(width);
  });
}

// The first place from `from` on whose start is at least `time`.
function firstFrom(start, time, from) {
  let step = 1, low = from, high = from;
  while (high < start.length && start[high] < time) { low = high + 1; high += step; step *= 2; }
  high = Math.min(high, start.length);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] < time) low = middle + 1; else high = middle;
  }
  return low;
}

// Colours the pixels of one row. shades: see shadesOf(). labels: gets [x, width, kind] of wide
// spans.
function paint(line, items, from, scale, shades, labels) {
  const {start, length, filled, kind, sum} = items, width = line.length;
  let i = Math.max(0, firstFrom(start, from, 0) - 1);
  for (;;) {
    if (i >= start.length) return;
    const x = (start[i] - from) * scale, end = x + length[i] * scale;
    if (x >= width) return;
    if (end <= 0) {  // the last before the first pixel
      i++;
      continue;
    }
    if (end - x >= 1.5) {
      const a = Math.max(0, Math.round(x)), b = Math.min(width, Math.round(end));
      const share = filled[i] / length[i];
      line.fill(shades[kind[i] * SHADES + Math.round(share * (SHADES - 1))], a, b);
      if (end - x > 5 && b < width && b > a) line[b - 1] = shades.back;  // between it and the next
      if (labels && b - a > 34 && share === 1) labels.push([a, b - a, kind[i]]);
      i++;
      continue;
    }
    // All that start within this pixel: the share that they cover, the kind of the longest of the
    // first twelve.
    const pixel = Math.floor(x);
    let next = firstFrom(start, from + (pixel + 1) / scale, i + 1);
    // Only the last of them can reach further, as spans of a row follow each other.
    if (next > i + 1 && length[next - 1] * scale >= 1.5) next--;
    let longest = i;
    for (let j = i + 1; j < next && j < i + 12; j++) if (filled[j] > filled[longest]) longest = j;
    if (pixel >= 0) {
      const share = Math.min(1, (sum[next] - sum[i]) * scale);
      line[pixel] = shades[kind[longest] * SHADES + Math.round(share * (SHADES - 1))];
    }
    i = next;
  }
}

// For each colour SHADES of them: from a little, where a pixel is hardly busy, to the colour.
const SHADES = 33;
function shadesOf(colours, back) {
  const found = new Uint32Array(colours.length * SHADES);
  colours.forEach((colour, i) => {
    for (let shade = 0; shade < SHADES; shade++) {
      found[i * SHADES + shade] = mix(back, colour, 0.3 + 0.7 * shade / (SHADES - 1));
    }
  });
  found.back = back;
  return found;
}

// Colours are numbers 0xAABBGGRR, as ImageData has them.
function mix(back, front, share) {
  if (share >= 1) return front;
  let found = 0xff000000;
  for (const shift of [0, 8, 16]) {
    const a = back >> shift & 255, b = front >> shift & 255;
    found |= Math.round(a + (b - a) * share) << shift;
  }
  return found >>> 0;
}
