// The planner's exact form and losses, for the sliders of the report. A port of exact.py and losses.py, line for line, so that
// the page and `hinan plan --json` give the same numbers (tests compare them). The search is search.js.
"use strict";

// ---- exact.py ----
function rates(levels) {
  const rows = [];
  levels.forEach((level, at) => level.causes.forEach(c => { if (c.per_s > 0) rows.push({ ...c, at }); }));
  return { rows, total: rows.reduce((sum, r) => sum + r.per_s, 0) };
}
function segment(length, R) {
  const struck = -Math.expm1(-R.total * length), share = struck / R.total;
  return { time: share, done: 1 - struck, ends: R.rows.map(r => r.per_s * share) };
}
function repeat(block, times) {
  const done = Math.pow(block.done, times), missing = 1 - block.done;
  const entered = missing < 1e-14 ? times : -Math.expm1(times * Math.log1p(-missing)) / missing;
  return { time: block.time * entered, done, ends: block.ends.map(e => e * entered) };
}
const then = (a, b) => ({
  time: a.time + a.done * b.time, done: a.done * b.done, ends: a.ends.map((e, i) => e + a.done * b.ends[i]),
});
function restart(length, own, floor, R) {
  const once = segment(length, R), bar = Math.max(own, floor);
  const low = R.rows.reduce((sum, r, i) => sum + (r.at < bar ? once.ends[i] : 0), 0);
  return {
    time: once.time / (1 - low), done: once.done / (1 - low),
    ends: once.ends.map((e, i) => (R.rows[i].at < bar ? 0 : e / (1 - low))),
  };
}
function saving(length, level, R) {
  if (length === 0) return { time: 0, done: 1, ends: R.rows.map(() => 0) };
  const once = segment(length, R);
  let back = 0, time = once.time;
  const ends = R.rows.map((r, i) => (r.at >= level ? once.ends[i] : 0));
  R.rows.forEach((r, i) => {
    if (r.at >= level) return;
    const way = restart(r.restart_s, r.at, level, R);
    back += once.ends[i] * way.done;
    time += once.ends[i] * way.time;
    ends.forEach((_, j) => { ends[j] += once.ends[i] * way.ends[j]; });
  });
  return { time: time / (1 - back), done: once.done / (1 - back), ends: ends.map(e => e / (1 - back)) };
}
function fresh(length, below, R) {
  if (!below.length) return segment(length, R);
  const last = below.at(-1), rest = below.slice(0, -1), first = Math.min(length, last.wall + last.lag);
  const start = closed(fresh(first, rest, R), rest, below.length - 1, R, false);
  return first === length ? start : then(start, repeat(last.block, (length - first) / last.wall));
}
function recoveries(own, below, level, R, lags) {
  const first = own.map(i => {
    const way = restart(R.rows[i].restart_s, level, level, R), redo = lags ? R.rows[i].lag_s : 0;
    return redo > 0 ? then(way, fresh(redo, below, R)) : way;
  });
  const size = own.length;
  const rows = first.map((f, r) => [
    ...own.map((o, c) => (r === c ? 1 : 0) - f.ends[o]), f.time, f.done,
    ...f.ends.map((e, j) => (own.includes(j) ? 0 : e)),
  ]);
  for (let c = 0; c < size; c++) {
    const pivot = rows[c][c];
    rows[c] = rows[c].map(v => v / pivot);
    for (let r = 0; r < size; r++) {
      if (r === c || rows[r][c] === 0) continue;
      const factor = rows[r][c];
      rows[r] = rows[r].map((v, k) => v - factor * rows[c][k]);
    }
  }
  return rows.map(row => ({ time: row[size], done: row[size + 1], ends: row.slice(size + 2) }));
}
function closed(attempt, below, level, R, lags = true) {
  const own = R.rows.map((r, i) => (r.at === level ? i : -1)).filter(i => i >= 0);
  if (!own.length) return attempt;
  const ways = recoveries(own, below, level, R, lags);
  let time = attempt.time;
  own.forEach((i, w) => { time += attempt.ends[i] * ways[w].time; });
  const ends = R.rows.map((_, j) => (own.includes(j) ? 0
    : attempt.ends[j] + own.reduce((sum, i, w) => sum + attempt.ends[i] * ways[w].ends[j], 0)));
  const scale = attempt.done + ends.reduce((a, b) => a + b, 0);
  return { time: time / scale, done: attempt.done / scale, ends: ends.map(e => e / scale) };
}
// Causes of one level with different lags come back to different saves: one level for each lag.
const lagsOf = level => [...new Set(level.causes.filter(c => c.per_s > 0).map(c => c.lag_s))].sort((a, b) => a - b);
function byLag(levels, multiples) {
  const apart = [], between = [];
  levels.forEach((level, k) => {
    const lags = lagsOf(level);
    (lags.length ? lags : [0]).forEach((lag, at) => {
      apart.push({ stall_s: at ? 0 : level.stall_s, lag, causes: level.causes.filter(c => c.lag_s === lag) });
      between.push(at ? 1 : k ? multiples[k - 1] : 0);
    });
  });
  return { apart, between: between.slice(1) };
}
function exactEttr(given, pattern) {
  const { apart: levels, between } = byLag(given, pattern.multiples);
  const R = rates(levels);
  let wall = pattern.work + levels[0].stall_s;
  const below = [];
  let block = closed(segment(wall, R), below, 0, R);
  between.forEach((multiple, n) => {
    const k = n + 1;
    below.push({ block, wall, lag: levels[n].lag });
    const attempt = then(repeat(block, multiple), saving(levels[k].stall_s, k, R));
    wall = wall * multiple + levels[k].stall_s;
    block = closed(attempt, below, k, R);
  });
  const kept = intervals(pattern).at(-1) / block.time;
  return Number.isFinite(kept) && kept > 0 ? kept : 0;
}

// ---- sliders: factors on the planned scenario ----
// slots.py: least intervals with which the slots do.
function leastOf(drains, slots) {
  const free = slots.free_saves ?? Infinity, longest = new Map(), least = [...drains];
  let lead = null;
  drains.forEach((drain, k) => {
    lead = slots.own.includes(k) ? k : lead;
    longest.set(lead, Math.max(longest.get(lead) ?? 0, drain + slots.copy_s));
  });
  const waits = [(longest.get(null) ?? 0) / free, (longest.get(0) ?? 0) / (1 + free)];
  least[0] = Math.max(least[0], slots.copy_s, slots.closest_s, ...waits);
  longest.forEach((read, own) => {
    if (own) least[own] = Math.max(least[own], read - free * least[0]);
  });
  return least;
}
// formulas.py: mean_unseen_s
const meanUnseen = (cadence, drain) => (drain >= cadence ? drain : (cadence + drain * drain / cadence) / 2);
function scaled(variant, knobs, verify) {
  const levels = variant.levels, leasts = leastOf(levels.map(l => l.drain_s * knobs.drain), variant.slots);
  const slowest = Math.max(...levels.map(l => l.drain_s)) * knobs.drain;
  const silent = levels.reduce((sum, l) => sum + l.causes.reduce((s, c) => s + (c.silent ? c.per_s : 0), 0), 0) / knobs.mtti;
  let every = null;
  if (silent > 0) every = verify.fixed_s !== null ? verify.fixed_s : Math.sqrt(2 * verify.cost_s / silent);
  const out = levels.map((l, k) => {
    const drain = l.drain_s * knobs.drain, least = leasts[k];
    const most = Math.min(l.redo_s === null ? Infinity : l.redo_s - drain, l.commit_s === null ? Infinity : Math.max(l.commit_s, least, slowest));
    return {
      ...l, drain_s: drain, slow_s: l.slow_s * knobs.drain,
      stall_s: l.own_stall_s * knobs.stall + l.slow_s * knobs.drain,
      least_s: least, most_s: Math.max(most, 0),
      causes: l.causes.map(c => ({
        ...c, per_s: c.per_s / knobs.mtti, restart_s: c.restart_s * knobs.restart,
        lag_s: c.silent ? meanUnseen(every, drain) : drain,
      })),
    };
  });
  return { levels: out, every, share: every === null ? 0 : verify.cost_s / every };
}
// The limits that a design misses, in the order of limits.py.
function missed(d, knobs, limits) {
  const causes = d.levels.flatMap(l => l.causes), top = d.levels.at(-1);
  const rate = causes.reduce((sum, c) => sum + c.per_s, 0), back = causes.reduce((sum, c) => sum + c.per_s * c.restart_s, 0) / rate;
  return {
    "hardly a drain would end": limits.hosts_per_s !== null && top.drain_s * limits.hosts_per_s / knobs.mtti >= 1,
    "interrupted again before the job is back": back * rate >= 1,
    "back later than allowed": limits.rto_s !== null && Math.max(...causes.map(c => c.restart_s)) > limits.rto_s,
    "no progress": d.ettr < limits.least_ettr,
    "more lost than allowed": limits.loss !== null && 1 - d.ettr > limits.loss,
  };
}
// Every limit filters what is chosen from before the best is picked: choice.py.
function design(variants, knobs, verify, B, limits) {
  let designs = [];
  variants.forEach(v => {
    const s = scaled(v, knobs, verify), pattern = solve(s.levels, B);
    if (pattern === null) return;
    const d = { ...v, ...s, pattern, taus: intervals(pattern), ettr: exactEttr(s.levels, pattern) / (1 + s.share) };
    designs.push({ ...d, missed: missed(d, knobs, limits) });
  });
  if (!designs.length) return { impossible: "no interval keeps the limits" };
  for (const limit of Object.keys(designs[0].missed)) {
    designs = designs.filter(d => !d.missed[limit]);
    if (!designs.length) return { impossible: limit };
  }
  const worth = d => d.ettr + d.preference;
  return { ...designs.reduce((best, d) => (worth(d) > worth(best) ? d : best)), impossible: null };
}
function withFirst(pattern, work) {
  const wanted = intervals(pattern).slice(1), multiples = [];
  let below = work;
  wanted.forEach(w => { multiples.push(Math.max(1, evenRound(w / below))); below *= multiples.at(-1); });
  return { work, multiples };
}
function losses(d, parts, knobs) {
  const out = { stall: 0, interference: 0, redo: 0 };
  d.levels.forEach((l, i) => {
    out.stall += (l.stall_s - l.slow_s) / d.taus[i];
    out.interference += l.slow_s / d.taus[i];
    l.causes.forEach(c => {
      out.redo += c.per_s * (c.lag_s + d.taus[i] / 2);
      Object.entries(parts[`${l.name}/${c.name}`]).forEach(([part, s]) => {
        out[part] = (out[part] || 0) + c.per_s * s * knobs.restart;
      });
    });
  });
  out.verify = d.share;
  const whole = Object.values(out).reduce((a, b) => a + b, 0), scale = whole > 0 ? (1 - d.ettr) / whole : 0;
  return Object.entries(out).map(([name, v]) => [name, v * scale]).filter(([, v]) => v > 0).sort((a, b) => b[1] - a[1]);
}
