// Pipelines. What is drawn keeps track of two things about the stream, so that every case has one outcome: whether the
// order of the documents is determined, and whether `_id` identifies them. Stages and accumulators that depend on order
// ($limit, $skip, $first, $push …) are drawn only where it is determined.
import { FIELDS } from './documents.mjs';
import { array, expression, numeric, object, string } from './expressions.mjs';
import { filter, projection, sort } from './queries.mjs';

export const SORTABLE = ['n', 'i', 's', 't', 'd', 'o.x'];

const accumulator = (draw, ordered) => draw.weighted([
  [3, () => ({ $sum: draw.chance(0.4) ? 1 : numeric(draw, 1) })],
  [2, () => ({ [draw.of(['$avg', '$min', '$max'])]: numeric(draw, 1) })],
  [1, () => ({ $count: {} })],
  [1, () => ({ [draw.of(['$stdDevPop', '$stdDevSamp'])]: numeric(draw, 1) })],
  [ordered ? 3 : 0, () => ({ [draw.of(['$first', '$last', '$push'])]: { $ifNull: [expression(draw, 1), 'none'] } })],
  [ordered ? 1 : 0, () => ({ [draw.of(['$firstN', '$lastN'])]: { n: draw.int(1, 3), input: numeric(draw, 1) } })],
  [1, () => ({ [draw.of(['$maxN', '$minN'])]: { n: draw.int(1, 3), input: numeric(draw, 1) } })],
  [1, () => ({ $addToSet: { $ifNull: [draw.of(['$t', '$s', '$i']), 'none'] } })],
  [ordered ? 1 : 0, () => ({ [draw.of(['$topN', '$bottomN'])]: { n: draw.int(1, 3), output: { v: '$n' }, sortBy: { _id: draw.of([1, -1]) } } })],
  [ordered ? 1 : 0, () => ({ $mergeObjects: object(draw, 1) })],
]);

const groupKey = (draw) => draw.weighted([
  [3, () => `$${draw.of(['t', 's', 'i', 'o.y'])}`],
  [2, () => string(draw, 1)],
  [1, () => ({ k: `$${draw.of(['t', 's'])}`, l: { $mod: [numeric(draw, 0), 2] } })],
  [1, () => null],
]);

// Each stage takes the state of the stream and gives [stage, state].
const STAGES = [
  [5, (draw, state) => [{ $match: filter(draw, 2) }, state]],
  [3, (draw, state) => [{ [draw.of(['$addFields', '$set'])]: fields(draw) }, state]],
  [2, (draw, state) => [{ $project: projection(draw) }, { ...state, unique: false }]],
  [2, (draw, state) => [{ $project: { _id: 1, ...fields(draw, 'p') } }, state]],
  [1, (draw, state) => [{ $unset: draw.chance(0.5) ? draw.of(FIELDS) : draw.some(FIELDS, 1, 2) }, state]],
  [3, (draw, state) => (state.unique ? [{ $sort: sort(draw, SORTABLE) }, { ...state, ordered: true }] : null)],
  [2, (draw, state) => (state.ordered ? [{ [draw.of(['$limit'])]: draw.int(1, 12) }, state] : null)],
  [1, (draw, state) => (state.ordered ? [{ $skip: draw.int(0, 6) }, state] : null)],
  [3, (draw, state) => [{ $unwind: draw.chance(0.4) ? draw.of(['$r', '$q', '$o.k']) : {
    path: draw.of(['$r', '$q', '$o.k']),
    ...(draw.chance(0.5) ? { preserveNullAndEmptyArrays: draw.chance(0.7) } : {}),
    ...(draw.chance(0.4) ? { includeArrayIndex: 'idx' } : {}),
  } }, { ...state, unique: false }]],
  [5, (draw, state) => [{ $group: { _id: groupKey(draw), ...Object.fromEntries(draw.many(1, 3, (i) => [`g${i}`, accumulator(draw, state.ordered)])) } },
    { ordered: false, unique: true }]],
  [1, (draw) => [{ $sortByCount: `$${draw.of(['t', 's', 'i', 'o.y'])}` }, { ordered: false, unique: true }]],
  [1, (draw) => [{ $count: 'total' }, { ordered: true, unique: false, last: true }]],
  [1, (draw) => [{ $bucket: { groupBy: { $add: [numeric(draw, 1), 0] }, boundaries: [-1000, 0.1, 2.1, 5.1, 1000], default: 'other',
    ...(draw.chance(0.6) ? { output: { count: { $sum: 1 }, m: { $max: numeric(draw, 0) } } } : {}) } }, { ordered: true, unique: true }]],
  [1, (draw) => [{ $bucketAuto: { groupBy: { $add: [numeric(draw, 0), 0] }, buckets: draw.int(1, 4) } }, { ordered: true, unique: false }]],
  [1, (draw, state) => [{ [draw.of(['$replaceWith'])]: { $mergeObjects: [{ _id: '$_id' }, object(draw, 1)] } }, state]],
  [1, (draw, state) => [{ $replaceRoot: { newRoot: { _id: '$_id', v: expression(draw, 1) } } }, state]],
  [2, (draw, state) => [{ $lookup: draw.chance(0.6)
    ? { from: 'other', localField: draw.of(['i', 's', 'n', 'r']), foreignField: draw.of(['i', 's', 'n', '_id']), as: 'joined' }
    : { from: 'other', let: { v: numeric(draw, 1) }, pipeline: [{ $match: { $expr: { [draw.of(['$eq', '$gt'])]: [{ $cond: [{ $isNumber: '$i' }, '$i', 0] }, { $ifNull: ['$$v', 0] }] } } }, { $project: { i: 1 } }], as: 'joined' } }, state]],
  [1, (draw, state) => [{ $unionWith: draw.chance(0.5) ? 'other' : { coll: 'other', pipeline: [{ $match: filter(draw, 1) }] } },
    { ...state, unique: false }]],
  [1, (draw, state) => (state.ordered ? [{ $facet: { one: [{ $match: filter(draw, 1) }, { $count: 'n' }],
    two: [{ $project: { _id: 1, v: expression(draw, 1) } }, { $limit: 5 }] } }, { ordered: true, unique: false, last: true }] : null)],
];

const fields = (draw, prefix = 'e') => Object.fromEntries(draw.many(1, 3, (i) => [
  draw.chance(0.15) && prefix === 'e' ? draw.of(['o.x', 'o.new', 's']) : `${prefix}${i}`,
  draw.chance(0.8) ? expression(draw, 2) : array(draw, 2),
]));

// A pipeline, and whether the order of its result is determined.
export function pipeline(draw) {
  let state = { ordered: true, unique: true };
  const stages = [];
  for (let left = draw.int(1, 4); left > 0 && !state.last;) {
    const drawn = draw.weighted(STAGES.map(([weight, f]) => [weight, () => f(draw, state)]));
    if (!drawn) continue;
    stages.push(drawn[0]);
    state = drawn[1];
    left -= 1;
  }
  return { stages, ordered: state.ordered };
}
