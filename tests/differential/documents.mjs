// Documents: few fields, few values, so that predicates hit, keys collide and groups fill; all the common types, mixed.
//
// Every field has a usual shape, and now and then another one: missing, null, of another type.
import { Decimal128, Double, Long, ObjectId } from './packages.mjs';

export const TEXTS = ['', 'a', 'ab', 'abc', 'B', 'b', 'x1', 'Zoë', 'a b'];
export const DATES = [0, 86400000, 951826554321, 1709210096789, 1735689599999].map((ms) => new Date(ms));
export const IDS = ['5f0000000000000000000001', '5f0000000000000000000002', '600000000000000000000001'].map((hex) => new ObjectId(hex));
const FRACTIONS = [0.5, 1.5, -2.5, 3.25, 10.75];

export const number = (draw) => draw.weighted([
  [6, () => draw.int(-3, 9)],
  [2, () => new Double(draw.int(-3, 9))],
  [2, () => new Double(draw.of(FRACTIONS))],
  [2, () => Long.fromNumber(draw.int(-3, 9))],
  [1, () => Decimal128.fromString(draw.of(['1', '2.5', '-3', '7', '0.5']))],
]);
export const integer = (draw) => (draw.chance(0.8) ? draw.int(-3, 9) : Long.fromNumber(draw.int(-3, 9)));
export const text = (draw) => draw.of(TEXTS);

export const scalar = (draw) => draw.weighted([
  [6, () => number(draw)],
  [4, () => text(draw)],
  [2, () => draw.chance(0.5)],
  [1, () => null],
  [1, () => draw.of(DATES)],
  [1, () => draw.of(IDS)],
]);

const item = (draw) => {
  const out = {};
  if (draw.chance(0.85)) out.x = number(draw);
  if (draw.chance(0.7)) out.y = draw.chance(0.8) ? text(draw) : scalar(draw);
  if (draw.chance(0.3)) out.k = draw.many(0, 3, () => number(draw));
  return out;
};

const SHAPES = {
  a: scalar,
  b: scalar,
  n: number,
  i: integer,
  s: text,
  d: (draw) => draw.of(DATES),
  t: (draw) => draw.chance(0.5),
  o: (draw) => ({ ...item(draw), ...(draw.chance(0.5) ? { z: { w: scalar(draw) } } : {}) }),
  r: (draw) => draw.many(0, 4, () => (draw.chance(0.85) ? number(draw) : scalar(draw))),
  q: (draw) => draw.many(0, 3, () => item(draw)),
};
export const FIELDS = Object.keys(SHAPES);
export const PATHS = [...FIELDS, 'o.x', 'o.y', 'o.z', 'o.z.w', 'o.k', 'q.x', 'q.y', 'q.k', 'q.0.x', 'r.0', 'r.1', 'q.1'];

// A document. `wild` is how often a field has a shape that is not its own.
export function document(draw, _id, wild = 0.12) {
  const out = { _id };
  for (const name of FIELDS) {
    const luck = draw.unit();
    if (luck < wild) continue;
    if (luck < wild * 1.4) out[name] = null;
    else if (luck < wild * 2) out[name] = draw.weighted([[3, scalar], [1, SHAPES.r], [1, SHAPES.o], [1, SHAPES.q]], draw);
    else out[name] = SHAPES[name](draw);
  }
  return out;
}

export const documents = (draw, count, wild) => Array.from({ length: count }, (_, i) => document(draw, i + 1, wild));
