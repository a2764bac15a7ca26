// The planner's joint search: a port of joint.py and whole.py, line for line. report.js has the exact form that it climbs on.
const TINY = 1e-9, MAX_MULTIPLE = 1000000;

// ---- joint.py ----
function intervals(pattern) {
  const out = [pattern.work];
  pattern.multiples.forEach(m => out.push(out.at(-1) * m));
  return out;
}
const perS = level => level.causes.reduce((sum, c) => sum + c.per_s, 0);
const stallRatio = (levels, taus) => levels.reduce((sum, l, i) => sum + l.stall_s / taus[i], 0);
function firstOrderLoss(levels, taus) {
  return stallRatio(levels, taus) + levels.reduce((sum, l, i) => sum + perS(l) * taus[i] / 2
    + l.causes.reduce((s, c) => s + c.per_s * (c.restart_s + c.lag_s), 0), 0);
}
const best = (cost, rate) => (rate > 0 ? Math.sqrt(2 * cost / rate) : cost > 0 ? Infinity : 0);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
function pooled(levels, price, least, most) {
  const pools = [];
  levels.forEach(level => {
    pools.push([level.stall_s * price, perS(level), 1]);
    while (pools.length > 1 && best(...pools.at(-2)) >= best(...pools.at(-1))) {
      const b = pools.pop(), a = pools.pop();
      pools.push([a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
    }
  });
  const flat = pools.flatMap(([cost, rate, count]) => Array(count).fill(best(cost, rate)));
  return flat.map((tau, i) => clamp(tau, least[i], most[i]));
}
function firstOrderIntervals(levels, budget, least, most) {
  const taus = pooled(levels, 1, least, most);
  if (budget === null || stallRatio(levels, taus) <= budget) return taus;
  let low = 1, high = 2;
  while (stallRatio(levels, pooled(levels, high, least, most)) > budget * (1 - 1e-6) && high < 1e18) high *= 2;
  for (let i = 0; i < 80; i++) {
    const price = Math.sqrt(low * high);
    if (stallRatio(levels, pooled(levels, price, least, most)) > budget) low = price; else high = price;
  }
  return pooled(levels, high, least, most);
}
function evenRound(x) { // Python rounds halves to even
  const down = Math.floor(x), rest = x - down;
  return rest < 0.5 ? down : rest > 0.5 ? down + 1 : down % 2 === 0 ? down : down + 1;
}
function snap(aims, B, least, most) {
  let first = clamp(aims[0], least[0], most[0]);
  if (B.fixed === null && B.quantum !== null) {
    let steps = Math.max(1, evenRound(first / B.quantum), Math.ceil(least[0] / B.quantum - 1e-9));
    while (steps > 1 && steps * B.quantum > most[0] * (1 + 1e-12)) steps--;
    first = steps * B.quantum;
  }
  const multiples = [];
  let below = first;
  for (let k = 1; k < aims.length; k++) {
    let wanted = Math.max(1, evenRound(clamp(aims[k], least[k], most[k]) / below));
    wanted = Math.max(wanted, Math.ceil(least[k] / below - 1e-9));
    if (wanted * below > most[k] * (1 + 1e-12) && wanted > 1) wanted = Math.max(1, Math.floor(most[k] / below + 1e-9));
    multiples.push(Math.min(wanted, MAX_MULTIPLE));
    below *= multiples.at(-1);
  }
  return { work: first, multiples };
}
// [minus the bounds' excess, kept share]: first the bounds are kept, then the share counts.
function value(levels, pattern, B, least, most) {
  const taus = intervals(pattern);
  let excess = 0;
  taus.forEach((tau, i) => {
    if (!(least[i] * (1 - 1e-9) <= tau && tau <= most[i] * (1 + 1e-9))) excess += Math.max(least[i] / tau, tau / most[i]) - 1;
  });
  const ratio = stallRatio(levels, taus);
  if (B.budget !== null && ratio > B.budget * (1 + 1e-9)) excess += ratio / B.budget - 1;
  return excess > 0 ? [-excess, 0] : [0, exactEttr(levels, pattern) || -firstOrderLoss(levels, taus)];
}
const above = (a, b) => a[0] > b[0] || (a[0] === b[0] && a[1] > b[1]);
function directions(count, factor) {
  const out = [], at = (k, j, scale) => (k === j ? scale : 1), each = [...Array(count).keys()];
  each.forEach(j => [factor, 1 / factor].forEach(scale => out.push(each.map(k => at(k, j, scale)))));
  each.forEach(up => each.forEach(down => {
    if (up !== down) out.push(each.map(k => at(k, up, factor) * at(k, down, 1 / factor)));
  }));
  return out;
}
function moved(counts, k, count) { // the slower intervals move along, or stay nearly where they are
  const out = [counts.map((c, j) => (j === k ? count : c))];
  if (k + 1 < counts.length) {
    const stays = counts[k] * counts[k + 1] / count;
    [Math.floor(stays), Math.ceil(stays)].filter(near => near >= 1)
      .forEach(near => out.push(out[0].map((c, j) => (j === k + 1 ? near : c))));
  }
  return out;
}
function neighbours(pattern, B) {
  const whole = B.fixed === null && B.quantum !== null, unit = whole ? B.quantum : pattern.work;
  const counts = [evenRound(pattern.work / unit), ...pattern.multiples], out = [];
  for (let k = whole ? 0 : 1; k < counts.length; k++) {
    [counts[k] - 1, counts[k] + 1].filter(count => count >= 1).forEach(count => out.push(...moved(counts, k, count)));
  }
  return out.map(([first, ...multiples]) => ({ work: first * unit, multiples }));
}
// ---- whole.py: along a stall budget, multiples with the first interval solved from it ----
const TOPS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32], LEAPS = [1.25, 1.5, 2, 5], STEPS = 4;
function withMultiples(levels, multiples, B, least, most) {
  if (B.fixed !== null) return { work: B.fixed, multiples };
  const counts = [1];
  multiples.forEach(m => counts.push(counts.at(-1) * m));
  const stall = levels.reduce((sum, l, k) => sum + l.stall_s / counts[k], 0);
  const redo = levels.reduce((sum, l, k) => sum + perS(l) * counts[k], 0);
  let low = Math.max(...counts.map((c, k) => least[k] / c));
  if (B.budget !== null) low = Math.max(low, stall / B.budget);
  const high = Math.min(...counts.map((c, k) => most[k] / c));
  let work = Math.max(low, Math.min(Math.sqrt(2 * stall / redo), high));
  if (B.quantum !== null) work = Math.max(1, Math.ceil(work / B.quantum - 1e-9)) * B.quantum;
  return { work, multiples };
}
function tightened(work, multiples, k, levels, B) {
  const taus = intervals({ work, multiples: multiples.map((m, j) => (j === k ? 1 : m)) });
  const under = stallRatio(levels.slice(0, k + 1), taus), over = stallRatio(levels.slice(k + 1), taus.slice(k + 1));
  if (under >= B.budget) return null;
  const least = Math.ceil(over / (B.budget - under) - 1e-9);
  return least > MAX_MULTIPLE ? null : { work, multiples: multiples.map((m, j) => (j === k ? Math.max(1, least) : m)) };
}
function others(count, near) {
  const out = new Set(LEAPS.flatMap(leap => [evenRound(count * leap), evenRound(count / leap)]));
  for (let other = count - near; other <= count + near; other++) out.add(other);
  out.delete(count);
  return [...out].sort((a, b) => a - b).filter(other => other >= 1 && other <= MAX_MULTIPLE);
}
function onTheEdge(pattern, levels, B, least, most) {
  const counts = pattern.multiples, out = [];
  counts.forEach((count, k) => others(count, 1).forEach(other =>
    moved(counts, k, other).forEach(multiples => out.push(withMultiples(levels, multiples, B, least, most)))));
  if (B.fixed === null && B.quantum !== null) {
    const last = counts.length - 1;
    const beside = counts.slice(0, last).flatMap((count, k) => [count - 1, count + 1].filter(other => other >= 1)
      .map(other => counts.map((c, j) => (j === k ? other : c))));
    others(evenRound(pattern.work / B.quantum), STEPS).forEach(steps => {
      const tight = [...counts.map((_, k) => [counts, k]), ...beside.map(each => [each, last])]
        .map(([each, k]) => tightened(steps * B.quantum, each, k, levels, B));
      out.push(...tight.filter(each => each !== null));
    });
  }
  return out;
}
function merged(level) {
  const causes = lagsOf(level).map(lag => {
    const same = level.causes.filter(c => c.per_s > 0 && c.lag_s === lag), rate = same.reduce((sum, c) => sum + c.per_s, 0);
    return { name: "all", per_s: rate, restart_s: same.reduce((s, c) => s + c.per_s * c.restart_s, 0) / rate, lag_s: lag };
  });
  return { ...level, causes };
}
function solve(all, B) {
  const levels = all.map(merged);
  const least = levels.map(l => Math.max(l.least_s, B.quantum || 0, TINY));
  const most = levels.map(l => (l.most_s === null ? Infinity : l.most_s));
  if (B.fixed !== null) least[0] = most[0] = B.fixed;
  for (let k = 1; k < levels.length; k++) least[k] = Math.max(least[k], least[k - 1]);
  for (let k = levels.length - 2; k >= 0; k--) most[k] = Math.min(most[k], most[k + 1]);
  if (least.some((low, k) => low > most[k] * (1 + 1e-12))) return null;
  const horizon = 10 / Math.min(...levels.map(perS).filter(rate => rate > 0));
  let aims = firstOrderIntervals(levels, B.budget, least, most).map(t => (Number.isFinite(t) ? t : horizon));
  const seen = new Map();
  const worthOf = pattern => {
    const key = pattern.work + "," + pattern.multiples;
    if (!seen.has(key)) seen.set(key, value(levels, pattern, B, least, most));
    return seen.get(key);
  };
  let pick = snap(aims, B, least, most), factor = 1.6;
  const last = B.quantum ? 1.0003 : 1.000002;
  while (factor > last) {
    let moved = false;
    for (const scales of directions(aims.length, factor)) {
      const trial = aims.map((a, i) => a * scales[i]), pattern = snap(trial, B, least, most);
      if (above(worthOf(pattern), worthOf(pick))) { aims = trial; pick = pattern; moved = true; }
    }
    if (!moved) factor = Math.sqrt(factor);
  }
  const highest = all => all.reduce((next, t) => (above(worthOf(t), worthOf(next)) ? t : next));
  const climbed = (from, around) => {
    for (let i = 0; i < 200; i++) {
      const next = highest([from, ...around(from)]);
      if (next === from) break;
      from = next;
    }
    return from;
  };
  const byOnes = p => neighbours(p, B);
  pick = climbed(pick, byOnes);
  if (B.budget !== null && pick.multiples.length) {
    const seeds = TOPS.map(top => withMultiples(levels, [...pick.multiples.slice(0, -1), top], B, least, most));
    const along = climbed(highest([pick, ...seeds]), p => onTheEdge(p, levels, B, least, most));
    pick = highest([pick, climbed(along, byOnes)]);
  }
  return worthOf(pick)[0] < 0 ? null : pick;
}
