// Filters, projections and sorts.
import { DATES, IDS, PATHS, TEXTS, integer, number, scalar, text } from './documents.mjs';
import { boolean } from './expressions.mjs';

const COMPARISONS = ['$eq', '$ne', '$gt', '$gte', '$lt', '$lte'];
// The reference has one type of numbers.
const PLAIN_TYPES = ['number', 'string', 'bool', 'date', 'null', 'object', 'array'];
const TYPES = ['number', 'string', 'bool', 'date', 'null', 'object', 'array', 'int', 'long', 'double', 'decimal', 'objectId'];
const PATTERNS = ['^a', 'b$', 'a.*c', '^$', '[a-c]+', 'x\\d', 'B'];

// A value that a path may well hold.
export const valueFor = (draw, path) => {
  if (draw.chance(0.15)) return scalar(draw);
  const last = path.split('.').pop();
  switch (last) {
    case 's': case 'y': return text(draw);
    case 'd': return draw.of(DATES);
    case 't': return draw.chance(0.5);
    case 'a': case 'b': case 'w': return scalar(draw);
    default: return number(draw);
  }
};

const range = (draw, path) => {
  // Ranges over null, arrays and documents are left to the comparison of indexes with scans.
  let value = valueFor(draw, path);
  while (value === null) value = valueFor(draw, path);
  return value;
};

const test = (draw, path, depth, wide) => draw.weighted([
  [6, () => ({ [draw.of(COMPARISONS.slice(0, 2))]: wide && draw.chance(0.1) ? structure(draw) : valueFor(draw, path) })],
  [8, () => ({ [draw.of(COMPARISONS.slice(2))]: wide && draw.chance(0.15) ? anything(draw) : range(draw, path) })],
  [4, () => ({ [draw.of(['$gt', '$gte'])]: range(draw, path), [draw.of(['$lt', '$lte'])]: range(draw, path) })],
  [4, () => ({ [draw.of(['$in', '$nin'])]: draw.many(0, 4, () => valueFor(draw, path)) })],
  [2, () => ({ $exists: draw.chance(0.5) })],
  [2, () => { const types = wide ? TYPES : PLAIN_TYPES; return { $type: draw.chance(0.8) ? draw.of(types) : draw.some(types, 1, 3) }; }],
  [wide ? 1 : 0.3, () => ({ $mod: [draw.of([2, 3, 4]), draw.int(0, 2)] })],
  [2, () => ({ $regex: draw.of(PATTERNS), ...(draw.chance(0.3) ? { $options: 'i' } : {}) })],
  [1, () => ({ $size: draw.int(0, 3) })],
  [wide ? 1 : 0.3, () => ({ $all: draw.many(1, 2, () => valueFor(draw, path)) })],
  [2, () => ({ $elemMatch: elementTest(draw, path, depth, wide) })],
  [wide ? 1 : 0.3, () => ({ [draw.of(['$bitsAllSet', '$bitsAnySet', '$bitsAllClear', '$bitsAnyClear'])]: draw.of([1, 2, 3, 5, [0], [1, 2]]) })],
  [depth > 0 ? 2 : 0, () => ({ $not: test(draw, path, depth - 1, wide) })],
]);

const structure = (draw) => draw.of([[], {}, [1], [1, 2], { x: 1 }, [[1]], { y: 'a' }, [null]]);
const anything = (draw) => (draw.chance(0.5) ? structure(draw) : draw.chance(0.3) ? null : draw.of(IDS));

const elementTest = (draw, path, depth, wide) => {
  if (path.startsWith('q') && path.length === 1) {
    return filter(draw, Math.min(depth - 1, 0), wide, ['x', 'y', 'k']);
  }
  return draw.chance(0.5)
    ? { $gte: number(draw), $lt: number(draw) }
    : { [draw.of([...COMPARISONS.slice(0, 1), ...COMPARISONS.slice(2)])]: range(draw, path) };
};

const clause = (draw, depth, wide, paths) => {
  const path = draw.of(paths);
  return { [path]: draw.chance(0.25) ? valueFor(draw, path) : test(draw, path, depth, wide) };
};

// A filter. `wide` adds what only another implementation of MongoDB itself would get right: ranges over arrays and such.
export function filter(draw, depth = 2, wide = false, paths = PATHS) {
  return draw.weighted([
    [6, () => clause(draw, depth, wide, paths)],
    [3, () => Object.assign({}, ...draw.many(1, 3, () => clause(draw, depth, wide, paths)))],
    [depth > 0 ? 3 : 0, () => ({ [draw.of(['$and', '$or', '$nor'])]: draw.many(1, 3, () => filter(draw, depth - 1, wide, paths)) })],
    [depth > 1 && paths === PATHS ? 1 : 0, () => ({ $expr: boolean(draw, 2) })],
    [0.2, () => ({})],
  ]);
}

// A sort whose last key is `_id`, so that it has one outcome.
export const sort = (draw, paths = PATHS) => {
  const out = {};
  for (const path of draw.some(paths, 1, 2)) {
    if (!Object.keys(out).some((other) => other.startsWith(`${path}.`) || path.startsWith(`${other}.`))) out[path] = draw.of([1, -1]);
  }
  return { ...out, _id: draw.of([1, -1]) };
};

// A projection: which fields, or which not.
export const projection = (draw, paths = PATHS.filter((path) => !/\.\d/.test(path))) => {
  const chosen = [];
  for (const path of draw.some(paths, 1, 3)) {
    if (!chosen.some((other) => other.startsWith(`${path}.`) || path.startsWith(`${other}.`))) chosen.push(path);
  }
  const kind = draw.of([0, 1]);
  const out = Object.fromEntries(chosen.map((path) => [path, kind]));
  if (draw.chance(0.4)) out._id = draw.chance(0.8) ? 0 : kind;
  return out;
};

export { integer, TEXTS };
