// Updates: operators with one change for each path, paths that exist or not, arrays with positions and filters.
import { DATES, number, scalar, text, integer } from './documents.mjs';
import { expression } from './expressions.mjs';
import { filter } from './queries.mjs';

const value = (draw) => draw.weighted([[5, () => scalar(draw)], [1, () => ({ x: number(draw) })], [1, () => draw.many(0, 2, () => number(draw))]]);

const OPERATORS = [
  [4, (draw) => ['$set', draw.of(['a', 's', 'o.x', 'o.new', 'o.z.w', 'fresh', 'fresh.deep', 'r.0', 'q.0.x', 'r.6']), value]],
  [2, (draw) => ['$unset', draw.of(['a', 's', 'o.x', 'o.z', 'r.0', 'none', 'q.0.y']), () => '']],
  [3, (draw) => [draw.of(['$inc', '$mul']), draw.of(['n', 'i', 'o.x', 'fresh', 'q.0.x']), number]],
  [2, (draw) => [draw.of(['$min', '$max']), draw.of(['n', 'i', 's', 'd', 'a', 'fresh']), (d) => d.weighted([[3, () => number(d)], [1, () => text(d)], [1, () => d.of(DATES)]])]],
  [3, (draw) => ['$push', draw.of(['r', 'o.k', 'fresh', 'q']), (d) => d.weighted([
    [2, () => number(d)],
    [3, () => ({ $each: d.many(0, 3, () => number(d)), ...(d.chance(0.4) ? { $slice: d.int(-3, 3) } : {}), ...(d.chance(0.4) ? { $position: d.int(-2, 2) } : {}) })],
    [1, () => ({ $each: d.many(1, 2, () => number(d)), $sort: d.of([1, -1]) })],
  ])]],
  [2, (draw) => ['$addToSet', draw.of(['r', 'o.k', 'fresh']), (d) => (d.chance(0.5) ? number(d) : { $each: d.many(0, 3, () => number(d)) })]],
  [2, (draw) => ['$pull', draw.of(['r', 'o.k', 'q']), (d, path) => (path === 'q'
    ? { x: d.chance(0.5) ? number(d) : { $gte: number(d) } }
    : d.chance(0.4) ? number(d) : d.chance(0.3) ? { $in: d.many(0, 2, () => number(d)) } : { [d.of(['$gt', '$lte'])]: number(d) })]],
  [1, (draw) => ['$pullAll', draw.of(['r', 'o.k']), (d) => d.many(0, 3, () => number(d))]],
  [1, (draw) => ['$pop', draw.of(['r', 'o.k', 'q']), (d) => d.of([1, -1])]],
  [1, (draw) => ['$rename', draw.of(['a', 's', 'o.x', 'none']), (d) => d.of(['renamed', 'o.renamed'])]],
  [1, (draw) => ['$bit', draw.of(['i', 'fresh']), (d) => ({ [d.of(['and', 'or', 'xor'])]: d.int(0, 15) })]],
  [2, (draw) => [draw.of(['$set', '$inc', '$mul']), draw.of(['r.$[]', 'q.$[].x']), number]],
  [2, (draw) => [draw.of(['$set', '$inc']), draw.of(['r.$[e]', 'q.$[f].x']), number]],
];

const FILTERS = {
  e: (draw) => ({ e: { [draw.of(['$gt', '$lte', '$ne'])]: number(draw) } }),
  f: (draw) => ({ 'f.x': { [draw.of(['$gt', '$lte', '$exists'])]: draw.int(0, 4) } }),
};

const overlaps = (one, other) => one === other || one.startsWith(`${other}.`) || other.startsWith(`${one}.`);

// {filter, update, arrayFilters}: an update of all documents that match.
export function update(draw) {
  if (draw.chance(0.12)) {
    const stages = draw.many(1, 2, () => draw.weighted([
      [3, () => ({ $set: { [draw.of(['e', 'o.x', 's'])]: expression(draw, 2) } })],
      [1, () => ({ $unset: draw.of(['a', 'r', 's']) })],
      [1, () => ({ $replaceWith: { $mergeObjects: ['$$ROOT', { e: expression(draw, 1) }] } })],
    ]));
    return { filter: filter(draw, 1), update: stages, arrayFilters: [] };
  }
  const out = {};
  const taken = [];
  for (let left = draw.int(1, 3); left > 0; left -= 1) {
    const [operator, path, make] = draw.weighted(OPERATORS.map(([weight, f]) => [weight, () => f(draw)]));
    const operand = make(draw, path);
    const roots = [path.split('.')[0], ...(operator === '$rename' ? [operand.split('.')[0]] : [])];
    if (roots.some((root) => taken.some((other) => overlaps(root, other)))) continue;
    taken.push(...roots);
    (out[operator] ??= {})[path] = operand;
  }
  const used = JSON.stringify(out);
  const arrayFilters = ['e', 'f'].filter((name) => used.includes(`$[${name}]`)).map((name) => FILTERS[name](draw));
  const condition = draw.chance(0.3) ? {} : filter(draw, 1);
  return { filter: condition, update: out, arrayFilters };
}

export { integer };
