// The planner's joint search: a port of first_order.py, space.py, beam.py and whole.py, line for line. report.js has the exact form that it climbs on.
const TINY = 1e-9, MAX_MULTIPLE = 1000000;

// ---- levels.py, first_order.py ----
function intervals(pattern) {
  const out = [pattern.work];
  pattern.multiples.forEach(m => out.push(out.at(-1) * m));
  return out;
}
const perS = level => level.causes.reduce((sum, c) => sum + c.per_s, 0);
const stallRatio = (levels, taus) => levels.reduce((sum, l, i) => sum + l.stall_s / taus[i], 0);
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
function stallPrice(levels, budget, least, most) {
  if (stallRatio(levels, pooled(levels, 1, least, most)) <= budget) return 1;
  let low = 1, high = 2;
  while (stallRatio(levels, pooled(levels, high, least, most)) > budget * (1 - 1e-6) && high < 1e18) high *= 2;
  for (let i = 0; i < 80; i++) {
    const price = Math.sqrt(low * high);
    if (stallRatio(levels, pooled(levels, price, least, most)) > budget) low = price; else high = price;
  }
  return high;
}
function evenRound(x) { // Python rounds halves to even
  const down = Math.floor(x), rest = x - down;
  return rest < 0.5 ? down : rest > 0.5 ? down + 1 : down % 2 === 0 ? down : down + 1;
}

// ---- space.py: a pattern is a row, the first interval and then the multiples ----
const cumulated = row => { let all = 1; return row.map(x => (all *= x)); };
const total = (S, taus, price, redo) => taus.reduce((sum, tau, k) => sum + S.stall[k] * price / tau + redo * S.perS[k] * tau / 2, 0);
const firstOrder = (S, row) => total(S, cumulated(row), 1, 1);
const fixedLoss = S => S.levels.reduce((sum, l) => sum + l.causes.reduce((s, c) => s + c.per_s * (c.restart_s + c.lag_s), 0), 0);
function sortedRows(rows) {
  const before = (a, b) => { for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] - b[i]; return 0; };
  return rows.sort(before).filter((row, i) => !i || before(row, rows[i - 1]));
}
function kept(S, rows) {
  return sortedRows(rows.filter(row => {
    const taus = cumulated(row);
    return taus.every((tau, k) => tau >= S.least[k] * (1 - TINY) && tau <= S.most[k] * (1 + TINY))
      && total(S, taus, 1, 0) <= S.budget * (1 + TINY);
  }));
}
function firstRange(S, counts) {
  const low = Math.max(...counts.map((c, k) => S.least[k] / c), total(S, counts, 1, 0) / S.budget);
  return [low, Math.min(...counts.map((c, k) => S.most[k] / c))];
}
function whole(S, first, low, high) {
  const least = Math.max(1, Math.ceil(low / S.quantum - TINY));
  const most = Math.max(least, Math.floor(Math.min(high, 1e18) / S.quantum + TINY)), steps = Math.floor(first / S.quantum);
  return [clamp(steps, least, most) * S.quantum, clamp(steps + 1, least, most) * S.quantum];
}
function withMultiples(S, all, keeping = []) {
  return sortedRows(all).flatMap(multiples => {
    if (S.fixed !== null) return [[S.fixed, ...multiples]];
    const counts = cumulated([1, ...multiples]), [low, high] = firstRange(S, counts);
    const stall = total(S, counts, 1, 0), redo = counts.reduce((sum, c, k) => sum + S.perS[k] * c, 0);
    const firsts = [Math.sqrt(2 * stall / redo), ...keeping.map((tau, k) => tau / counts[k])]
      .map(first => clamp(first, low, Math.max(low, high)));
    return (S.quantum === null ? firsts : firsts.flatMap(first => whole(S, first, low, high))).map(first => [first, ...multiples]);
  });
}

// ---- beam.py ----
const WIDTH = 250, FINE = 1.04, SPAN = 10, PRICES = [0.1, 0.5, 1, 2, 10, 1000];
const WINDOW = [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6], BEAM_LEAPS = [0.25, 0.5, 0.7, 1.4, 2, 4];
const upTo = n => [...Array(n).keys()].map(i => i + 1), PARTS = upTo(24), FEW_PARTS = upTo(6);
function candidates(S, price) {
  const wanted = wantedS(S, price), prices = S.budget === Infinity ? [1] : PRICES.map(p => Math.max(1, price * p));
  const each = prices.map(p => [p, wantedS(S, p)]);
  let rows = firsts(S, wanted).map(first => [first]);
  for (let k = 1; k < S.levels.length; k++) {
    rows = rows.flatMap(row => extended(S, row, wanted, k)).map(row => [leastCost(S, row, each), row]);
    rows = rows.sort((a, b) => a[0] - b[0]).slice(0, WIDTH).map(([, row]) => row);
  }
  return rows;
}
function wantedS(S, price) {
  const rare = 1e-3 * Math.min(...S.perS.filter(rate => rate > 0));
  return S.stall.map((stall, k) => clamp(Math.sqrt(2 * stall * price / Math.max(S.perS[k], rare)), S.least[k], S.most[k]));
}
function firsts(S, wanted) {
  if (S.fixed !== null) return [S.fixed];
  const low = Math.max(S.least[0], Math.min(...wanted) / SPAN), high = Math.max(low, Math.min(S.most[0], Math.max(...wanted) * 2));
  let found = [];
  for (let i = 0; i < Math.trunc(Math.log(high / low) / Math.log(FINE)) + 2; i++) found.push(low * FINE ** i);
  found = [...found, ...meetingS(S, wanted, 0, PARTS)].map(first => clamp(first, low, high));
  if (S.quantum !== null) found = found.flatMap(first => whole(S, first, low, high));
  return [...new Set(found)].sort((a, b) => a - b);
}
function meetingS(S, wanted, k, parts) {
  const ends = [...S.least.slice(k), ...S.most.slice(k).filter(Number.isFinite), ...wanted.slice(k)];
  return ends.flatMap(end => parts.map(part => end / part));
}
function extended(S, row, wanted, k) {
  const taus = cumulated(row), below = taus.at(-1), near = Math.max(wanted[k], below) / below, sum = all => all.reduce((a, b) => a + b, 0);
  const least = Math.ceil(S.least[k] / below - TINY), most = Math.floor(S.most[k] / below + TINY);
  const spent = total(S, taus, 1, 0), later = S.stall.slice(k + 1);
  const left = S.budget - spent, rest = sum(later.map((stall, j) => stall / wanted[k + 1 + j]));
  const tight = [S.stall[k] / Math.max(left - rest, 0) / below, sum(S.stall.slice(k)) / Math.max(left, 0) / below]
    .map(count => Math.ceil(count - TINY));
  const meeting = meetingS(S, wanted, k + 1, FEW_PARTS).map(end => Math.floor(end / below + TINY));
  const counts = [...WINDOW.map(by => Math.floor(near) + by), ...BEAM_LEAPS.map(leap => Math.floor(near * leap)),
    least, most, ...tight, ...tight.map(count => count + 1), ...meeting, ...meeting.map(count => count + 1)];
  const low = Math.max(least, 1), high = clamp(most, 1, MAX_MULTIPLE), longest = sum(later.map((stall, j) => stall / S.most[k + 1 + j]));
  return [...new Set(counts.map(count => Math.min(Math.max(count, low), high)))].sort((a, b) => a - b)
    .filter(count => count >= 1 && count * below <= S.most[k] * (1 + TINY)
      && spent + S.stall[k] / (below * count) + longest <= S.budget)
    .map(count => [...row, count]);
}
function leastCost(S, row, each) {
  const taus = cumulated(row), below = taus.at(-1);
  return Math.max(0, ...each.map(([price, wanted]) => {
    const slower = wanted.slice(taus.length).map((tau, j) => Math.min(Math.max(tau, below), S.most[taus.length + j]));
    return total(S, [...taus, ...slower], price, 1) - (price > 1 ? (price - 1) * S.budget : 0);
  }));
}

// ---- whole.py ----
const SHORTLIST = 1000, ROUGH = 0.05, ROUGHER = 4, LEAPS = [0.2, 0.5, 2 / 3, 0.8, 0.98, 1.02, 1.25, 1.5, 2, 5], NEAR = 5, MOST_MOVES = 200, NOISE = 1e-11, FEW = 100;
const BESIDE = [-2, -1, 1, 2], TRADES = [...Array(13).keys()].map(i => 0.8 * (1.25 / 0.8) ** (i / 12));
const ZOOM = [...Array(17).keys()].map(i => -1 + i / 8);
const patternOf = row => ({ work: row[0], multiples: row.slice(1) });
function bestPattern(S, price) {
  let found = candidates(S, price);
  found = kept(S, [...found, ...withMultiples(S, found.map(row => row.slice(1)))]);
  if (!found.length) return null;
  const seen = new Map();
  let [row, value] = bestOf(S, found, seen);
  for (let i = 0; i < MOST_MOVES; i++) {
    const [other, its] = bestOf(S, kept(S, [row, ...around(S, row)]), seen);
    if (its - value <= NOISE * Math.abs(value)) break;
    [row, value] = [other, its];
  }
  return patternOf(row);
}
function shortlist(S, rows) {
  const ranked = rows.map(row => [firstOrder(S, row), row]).sort((a, b) => a[0] - b[0]), least = ranked[0][0];
  const rough = ROUGH + ROUGHER * (least + fixedLoss(S)), near = ranked.filter(([loss]) => loss <= least * (1 + rough)).length;
  return ranked.slice(0, Math.min(SHORTLIST, Math.max(FEW, near))).map(([, row]) => row);
}
function bestOf(S, rows, seen) {
  let pick = null, value = -Infinity;
  shortlist(S, rows).forEach(row => {
    const key = row.join();
    if (!seen.has(key)) seen.set(key, exactEttr(S.levels, patternOf(row)) || -firstOrder(S, row));
    if (seen.get(key) > value) [pick, value] = [row, seen.get(key)];
  });
  return [pick, value];
}
function around(S, row) {
  const unit = S.quantum || row[0], counts = [row[0] / unit, ...row.slice(1)].map(evenRound), moves = [counts];
  for (let k = S.quantum ? 0 : 1; k < counts.length; k++) {
    others(counts, k).forEach(count => moves.push(...moved(counts, k, count)));
  }
  if (S.budget < Infinity) counts.slice(1).forEach((_, k) => moves.push(...traded(counts, k)));
  const suited = withMultiples(S, moves.map(each => each.slice(1)), cumulated(row));
  if (S.quantum === null && S.fixed === null) {
    const [low, high] = firstRange(S, cumulated([1, ...row.slice(1)]));
    [0.5, 0.05, 0.005, 0.0005].forEach(scale => ZOOM.forEach(by =>
      suited.push([Math.min(Math.max(row[0] * (1 + scale * by), low), high), ...row.slice(1)])));
  }
  return [...moves.map(([first, ...multiples]) => [first * unit, ...multiples]), ...suited];
}
function moved(counts, k, count) { // of the slower intervals the next few stay nearly where they are, the others move along
  const intervals = cumulated(counts), moves = [];
  let begun = [[...counts.slice(0, k), count]];
  for (let above = k + 1; above <= counts.length; above++) {
    moves.push(...begun.map(row => [...row, ...counts.slice(above)]));
    if (above < counts.length) begun = begun.flatMap(row =>
      wholeAround(intervals[above] / cumulated(row).at(-1)).map(near => [...row, near]));
  }
  return moves;
}
function traded(counts, k) {
  return BESIDE.map(by => Math.max(1, counts[k + 1] + by)).flatMap(above => TRADES.map(by => {
    const own = clamp(Math.floor(counts[k] * counts[k + 1] / above * by), 1, MAX_MULTIPLE);
    return counts.map((c, j) => (j === k ? own : j === k + 1 ? above : c));
  }));
}
function others(counts, k) { // among them those with which the count above changes by one or two, its interval staying
  const count = counts[k], found = new Set(LEAPS.map(leap => evenRound(count * leap)));
  for (let by = -NEAR; by <= NEAR; by++) found.add(count + by);
  if (k + 1 < counts.length) BESIDE.filter(by => counts[k + 1] + by >= 1)
    .forEach(by => wholeAround(count * counts[k + 1] / (counts[k + 1] + by)).forEach(near => found.add(near)));
  found.delete(count);
  return [...found].filter(other => other >= 1 && other <= MAX_MULTIPLE).sort((a, b) => a - b);
}
const wholeAround = count => [...new Set([Math.max(1, Math.floor(count)), Math.max(1, Math.ceil(count))])];

// ---- joint.py ----
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
  const most = levels.map(l => l.most_s);
  if (B.fixed !== null) least[0] = most[0] = B.fixed;
  for (let k = 1; k < levels.length; k++) least[k] = Math.max(least[k], least[k - 1]);
  for (let k = levels.length - 2; k >= 0; k--) most[k] = Math.min(most[k], most[k + 1]);
  if (least.some((low, k) => low > most[k] * (1 + 1e-12))) return null;
  const budget = B.budget === null ? Infinity : B.budget;
  const S = { levels, least, most, budget, fixed: B.fixed, quantum: B.fixed === null ? B.quantum : null,
    stall: levels.map(l => l.stall_s), perS: levels.map(perS) };
  return bestPattern(S, stallPrice(levels, budget, least, most));
}
