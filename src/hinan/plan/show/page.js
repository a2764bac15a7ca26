// The page of the report: sliders in, numbers, curves and bars out. All arithmetic is in report.js and search.js.
"use strict";
const $ = id => document.getElementById(id);
const B = DATA.bounds;

function seconds(s) {
  if (s === null || !Number.isFinite(s)) return "–";
  if (s < 1e-3) return `${(s * 1e6).toFixed(0)} µs`;
  if (s < 1) return `${(s * 1e3).toPrecision(3)} ms`;
  if (s < 120) return `${s.toFixed(1)} s`;
  if (s < 7200) return `${Math.floor(Math.round(s) / 60)} min ${Math.round(s) % 60} s`;
  if (s < 172800) return `${Math.floor(Math.round(s) / 3600)} h ${Math.floor(Math.round(s) / 60) % 60} min`;
  return `${(s / 86400).toFixed(1)} d`;
}
const percent = (r, digits = 2) => `${(r * 100).toFixed(digits)} %`;

function knobs() {
  const read = name => Math.pow(10, Number($(`s-${name}`).value));
  return { mtti: read("mtti"), stall: read("stall"), drain: read("drain"), restart: read("restart") };
}

function fill(table, rows) {
  const body = $(table).querySelector("tbody");
  body.replaceChildren(...rows.map(cells => {
    const tr = document.createElement("tr");
    cells.forEach(text => { const td = document.createElement("td"); td.textContent = text; tr.append(td); });
    return tr;
  }));
}

// ---- drawing ----
const SVG = "http://www.w3.org/2000/svg";
function draw(name, attributes, text) {
  const e = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, v]) => e.setAttribute(key, v));
  if (text !== undefined) e.textContent = text;
  return e;
}
function ticks(low, high) { // powers of ten, with 3s where few
  const out = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) out.push(10 ** p);
  const inside = t => t >= low * 0.999 && t <= high * 1.001;
  const few = out.filter(inside);
  return few.length > 2 ? few : out.flatMap(t => [t, 3 * t]).filter(inside);
}
function niceTicks(low, high) { // 1-2-5 steps for a narrow range
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough);
  const out = [];
  for (let t = Math.ceil(low / step) * step; t <= high; t += step) out.push(t);
  return out;
}
// Drawn at the width of the page, so that text keeps its size on a phone.
const widthOf = host => Math.max(280, $(host).clientWidth);
function chart(host, points, options) {
  const W = widthOf(host), H = Math.max(230, Math.min(320, W * 0.55)), L = 66, R = 22, T = 14, Bm = 40;
  const svg = draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": options.label });
  const xs = points.map(p => p.x), ys = points.map(p => p.y);
  const x0 = Math.min(...xs), x1 = Math.max(...xs);
  let y0 = Math.min(...ys), y1 = Math.max(...ys);
  const logY = options.logY && y1 / y0 > 3;
  if (!logY) { const pad = (y1 - y0 || y1) * 0.08; y0 = Math.max(0, y0 - pad); y1 += pad; }
  const X = x => L + (Math.log(x / x0) / Math.log(x1 / x0)) * (W - L - R);
  const Y = logY ? y => T + (1 - Math.log(y / y0) / Math.log(y1 / y0)) * (H - T - Bm)
    : y => T + (1 - (y - y0) / (y1 - y0)) * (H - T - Bm);
  const yTicks = logY ? ticks(y0, y1) : niceTicks(y0, y1);
  yTicks.forEach(t => {
    svg.append(draw("line", { class: "gridline", x1: L, x2: W - R, y1: Y(t), y2: Y(t) }));
    svg.append(draw("text", { x: L - 8, y: Y(t) + 4, "text-anchor": "end" }, options.yText(t)));
  });
  ticks(x0, x1).forEach(t => svg.append(draw("text", { x: X(t), y: H - 20, "text-anchor": "middle" }, options.xText(t))));
  svg.append(draw("line", { class: "axis", x1: L, x2: W - R, y1: H - Bm, y2: H - Bm }));
  svg.append(draw("text", { x: (L + W - R) / 2, y: H - 4, "text-anchor": "middle" }, options.xName));
  svg.append(draw("path", { class: "curve", d: points.map((p, i) => `${i ? "L" : "M"}${X(p.x)},${Y(p.y)}`).join("") }));
  (options.rules || []).filter(r => r.x > x0 && r.x < x1).forEach(r => {
    svg.append(draw("line", { class: "rule", x1: X(r.x), x2: X(r.x), y1: T, y2: H - Bm }));
    svg.append(draw("text", { x: X(r.x) + 5, y: T + 12, class: "ink" }, r.text));
  });
  const mark = options.mark;
  if (mark && mark.x >= x0 && mark.x <= x1) svg.append(draw("circle", { class: "dot", cx: X(mark.x), cy: Y(mark.y), r: 5.5 }));
  const dot = draw("circle", { class: "hover", r: 4, visibility: "hidden" });
  const tip = draw("text", { class: "ink", y: H - Bm - 8, x: L + 8, visibility: "hidden" });
  svg.append(dot, tip);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * W;
    const near = points.reduce((a, b) => (Math.abs(X(a.x) - at) < Math.abs(X(b.x) - at) ? a : b));
    dot.setAttribute("cx", X(near.x)); dot.setAttribute("cy", Y(near.y));
    tip.textContent = `${options.xText(near.x)}: ${options.yText(near.y)}${near.note ? `, ${near.note}` : ""}`;
    [dot, tip].forEach(e => e.setAttribute("visibility", "visible"));
  });
  svg.addEventListener("pointerleave", () => [dot, tip].forEach(e => e.setAttribute("visibility", "hidden")));
  $(host).replaceChildren(svg);
}
function waterfall(host, parts, ettr) {
  const rows = [["all GPU time", 1, 0], ...parts.filter(([, v]) => v > 0), ["training kept", ettr]];
  const W = widthOf(host), rowH = 26, L = 104, R = 74, H = rows.length * rowH + 8;
  const svg = draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "waterfall of lost time" });
  const floor = Math.max(0, ettr - (1 - ettr) * 0.35); // the axis starts shortly below what is kept, and says so
  const X = r => L + ((r - floor) / (1 - floor)) * (W - L - R);
  let at = 1;
  rows.forEach(([name, v], i) => {
    const y = i * rowH + 4, whole = i === 0 || i === rows.length - 1;
    const from = whole ? floor : at - v, to = whole ? v : at;
    if (!whole) at -= v;
    svg.append(draw("text", { x: L - 8, y: y + 15, "text-anchor": "end", class: "ink" }, name));
    const width = Math.max(1, X(to) - X(from));
    svg.append(draw("rect", { class: "bar", x: X(from), y: y + 3, width, height: rowH - 9, rx: 2, opacity: whole ? 0.45 : 1 }));
    svg.append(draw("text", { x: X(to) + 6, y: y + 15 }, percent(v, whole ? 2 : 3)));
  });
  $(host).replaceChildren(svg);
  const note = document.createElement("p");
  note.className = "soft";
  note.textContent = `The bars start at ${percent(floor, 1)}, not at zero.`;
  $(host).append(note);
}

// ---- one round: sliders -> design -> page ----
function show() {
  const k = knobs();
  const d = design(DATA.variants, k, DATA.verify, B, DATA.limits);
  $("o-mtti").textContent = seconds(DATA.mtti_s * k.mtti);
  ["drain", "restart"].forEach(name => { $(`o-${name}`).textContent = `× ${k[name].toPrecision(3)}`; });
  if (d.impossible) {
    $("k-ettr").textContent = `impossible: ${d.impossible}`;
    ["k-interval", "k-steps", "k-usd"].forEach(id => { $(id).textContent = "–"; });
    ["k-ettr", "k-interval"].forEach(id => { delete $(id).dataset.value; });
    fill("tiers", []);
    return;
  }
  const asPlanned = Object.values(k).every(factor => factor === 1);
  const kept = DATA.refused && asPlanned ? DATA.refused.simulated : d.ettr, loss = 1 - kept, first = d.levels[0];
  $("k-form").textContent = !DATA.refused ? "exact form" : asPlanned ? "simulated; the exact form is refused" : "exact form, refused as planned";
  $("o-stall").textContent = seconds(first.own_stall_s * k.stall);
  $("k-interval").textContent = seconds(d.taus[0]);
  $("k-interval").dataset.value = d.taus[0];
  $("k-first").textContent = first.name;
  $("k-steps").textContent = Math.max(1, Math.round(d.taus[0] / DATA.step_s)).toLocaleString("en");
  $("k-ettr").textContent = percent(kept);
  $("k-ettr").dataset.value = kept;
  $("k-usd").textContent = Math.round(loss * DATA.gpus * 24 * DATA.usd_per_gpu_hour).toLocaleString("en");
  fill("tiers", d.levels.map((l, i) => [
    l.name, seconds(d.taus[i]), Math.max(1, Math.round(d.taus[i] / DATA.step_s)).toLocaleString("en"), seconds(l.stall_s),
    l.drain_s > 0 ? seconds(l.drain_s) : "–", l.causes.map(c => c.name).join(", ") || "–",
  ]));
  [...$("tiers").querySelectorAll("tbody tr")].forEach((tr, i) => { tr.dataset.intervalS = d.taus[i]; });
  const span = 30, points = [];
  for (let i = 0; i <= 80; i++) {
    const x = d.taus[0] * span ** (i / 40 - 1);
    points.push({ x, y: 1 - exactEttr(d.levels, withFirst(d.pattern, x)) / (1 + d.share) });
  }
  chart("c-waste", points, {
    label: "loss against interval", xName: `interval of ${first.name}`, xText: seconds, logY: true,
    yText: y => percent(y, y < 0.1 ? 2 : 0), mark: { x: d.taus[0], y: 1 - d.ettr }, rules: [{ x: 300, text: "5 min" }],
  });
  const sizes = DATA.scale.map(s => ({ s, d: design([{ ...s, preference: 0 }], k, DATA.verify, B, s.limits) }))
    .filter(p => !p.d.impossible);
  if (sizes.length > 1) {
    const at = sizes.map(p => ({ x: p.s.gpus, y: p.d.taus[0], note: `ETTR ${percent(p.d.ettr)}` }));
    const here = at.find(p => p.x === DATA.gpus);
    chart("c-scale", at, {
      label: "interval against number of GPUs", xName: "GPUs", xText: n => n.toLocaleString("en"), yText: seconds,
      logY: true, mark: here,
    });
  } else { $("c-scale").textContent = "No other size has an answer under these settings."; }
  waterfall("c-fall", losses(d, DATA.parts, k), d.ettr);
}

$("subtitle").textContent = DATA.subtitle;
DATA.warnings.forEach(text => {
  const p = document.createElement("p");
  p.className = "warn"; p.textContent = text; $("warnings").append(p);
});
$("witnesses").textContent = DATA.witnesses;
$("binding").textContent = DATA.binding;
$("why").textContent = DATA.why;
fill("classes", DATA.classes.map(c => [c.failure, c.tier, c.per_day.toPrecision(2), seconds(c.rpo_mean_s), seconds(c.rpo_worst_s), seconds(c.rto_s)]));
fill("inputs", DATA.inputs);
document.querySelectorAll("input[type=range]").forEach(input => input.addEventListener("input", show));
let drawnAt = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== drawnAt) { drawnAt = window.innerWidth; show(); }
});
$("reset").addEventListener("click", () => {
  document.querySelectorAll("input[type=range]").forEach(input => { input.value = 0; });
  show();
});
show();
