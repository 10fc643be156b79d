// Aggregation expressions by the type they give, so that most of them are not refused: every operand is a value of the
// type its operator takes, or a field guarded to be one. Mistyped operands are the business of Baton's own unit tests.
import { DATES, FIELDS, number, text } from './documents.mjs';

const NUMBERS = ['n', 'i', 'a', 'o.x', 'b'];
const STRINGS = ['s', 'o.y', 'a'];
const ARRAYS = ['r', 'q', 'q.x', 'q.y', 'o.k', 'a'];
const UNITS = ['day', 'hour', 'month', 'year', 'week', 'minute'];

const guarded = (path, is, fallback) => ({ $cond: [is(`$${path}`), `$${path}`, fallback] });
const isType = (...types) => (path) => ({ $in: [{ $type: path }, types] });

const leafNumber = (draw) => (draw.chance(0.35) ? number(draw) : guarded(draw.of(NUMBERS), (p) => ({ $isNumber: p }), draw.int(0, 5)));
const leafText = (draw) => (draw.chance(0.35) ? { $literal: text(draw) } : guarded(draw.of(STRINGS), isType('string'), text(draw)));
const leafArray = (draw) => (draw.chance(0.2) ? { $literal: draw.many(0, 3, () => number(draw)) } : guarded(draw.of(ARRAYS), (p) => ({ $isArray: p }), []));
const leafDate = (draw) => (draw.chance(0.3) ? draw.of(DATES) : guarded('d', isType('date'), draw.of(DATES)));
const whole = (draw) => ({ $toInt: { $trunc: [{ $min: [50, { $max: [-50, leafNumber(draw)] }] }] } });
// Arrays of numbers, for operators that need an order or a sum.
const numbers = (draw) => ({ $filter: { input: guarded(draw.of(['r', 'q.x', 'o.k']), (p) => ({ $isArray: p }), [1, 2]), as: 'e', cond: { $isNumber: '$$e' } } });

export function numeric(draw, depth) {
  if (depth <= 0) return leafNumber(draw);
  const n = () => numeric(draw, depth - 1);
  return draw.weighted([
    [3, () => leafNumber(draw)],
    [3, () => ({ [draw.of(['$add', '$multiply'])]: draw.many(1, 3, n) })],
    [2, () => ({ $subtract: [n(), n()] })],
    [1, () => ({ $divide: [n(), draw.of([2, 4, -3, 0.5])] })],
    [1, () => ({ $mod: [n(), draw.of([2, 3, 5])] })],
    [2, () => ({ [draw.of(['$abs', '$ceil', '$floor'])]: n() })],
    [1, () => ({ [draw.of(['$round', '$trunc'])]: [n(), draw.int(0, 2)] })],
    [1, () => ({ [draw.of(['$sqrt', '$exp', '$ln', '$log10'])]: { $add: [1, { $abs: { $min: [n(), 20] } }] } })],
    [1, () => ({ $pow: [{ $min: [9, { $max: [-9, n()] }] }, draw.of([0, 1, 2, 3])] })],
    [1, () => ({ [draw.of(['$sum', '$avg', '$min', '$max'])]: numbers(draw) })],
    [1, () => ({ [draw.of(['$sum', '$min', '$max'])]: [n(), n()] })],
    [1, () => ({ $size: array(draw, depth - 1) })],
    [1, () => ({ $indexOfArray: [numbers(draw), number(draw)] })],
    [1, () => ({ [draw.of(['$strLenCP', '$strLenBytes'])]: string(draw, depth - 1) })],
    [1, () => ({ [draw.of(['$cmp'])]: [n(), n()] })],
    [1, () => ({ $strcasecmp: [leafText(draw), leafText(draw)] })],
    [1, () => ({ [draw.of(['$year', '$month', '$dayOfMonth', '$hour', '$minute', '$second', '$millisecond', '$dayOfYear', '$dayOfWeek', '$isoWeek', '$isoDayOfWeek', '$isoWeekYear', '$week'])]: leafDate(draw) })],
    [1, () => ({ $dateDiff: { startDate: leafDate(draw), endDate: leafDate(draw), unit: draw.of(['day', 'hour', 'month', 'year', 'minute', 'second', 'quarter']) } })],
    [1, () => ({ $reduce: { input: numbers(draw), initialValue: number(draw), in: { [draw.of(['$add', '$max', '$subtract'])]: ['$$value', '$$this'] } } })],
    [1, () => ({ [draw.of(['$bitAnd', '$bitOr', '$bitXor'])]: [whole(draw), whole(draw)] })],
    [1, () => ({ [draw.of(['$arrayElemAt'])]: [numbers(draw), draw.int(-2, 2)] })],
    [1, () => ({ [draw.of(['$first', '$last'])]: numbers(draw) })],
    [1, () => ({ $toInt: { $trunc: [n()] } })],
    [2, () => conditional(draw, n)],
  ]);
}

export function string(draw, depth) {
  if (depth <= 0) return leafText(draw);
  const s = () => string(draw, depth - 1);
  return draw.weighted([
    [3, () => leafText(draw)],
    [2, () => ({ $concat: draw.many(1, 3, s) })],
    [2, () => ({ [draw.of(['$toLower', '$toUpper'])]: s() })],
    [1, () => ({ [draw.of(['$substrCP', '$substrBytes'])]: [{ $literal: draw.of(['', 'hello', 'abc', 'x1 y2']) }, draw.int(0, 3), draw.int(0, 4)] })],
    [1, () => ({ [draw.of(['$trim', '$ltrim', '$rtrim'])]: { input: s(), ...(draw.chance(0.5) ? { chars: draw.of(['a', 'ab', 'x1']) } : {}) } })],
    [1, () => ({ [draw.of(['$replaceOne', '$replaceAll'])]: { input: s(), find: draw.of(['a', 'b', 'ab']), replacement: draw.of(['', 'z', 'aa']) } })],
    [1, () => ({ $toString: draw.of([{ $isArray: '$r' }, whole(draw), leafText(draw)]) })],
    [1, () => ({ $dateToString: { date: leafDate(draw), format: draw.of(['%Y-%m-%d', '%H:%M:%S.%L', '%j %u %V %G', '%d/%m/%Y']) } })],
    [2, () => conditional(draw, s)],
  ]);
}

export function boolean(draw, depth) {
  const deeper = () => boolean(draw, depth - 1);
  return draw.weighted([
    [4, () => {
      const [make, none] = draw.chance(0.7) ? [numeric, 0] : [string, ''];
      const side = () => ({ $ifNull: [make(draw, depth - 1), none] });
      return { [draw.of(['$eq', '$ne', '$gt', '$gte', '$lt', '$lte'])]: [side(), side()] };
    }],
    [depth > 0 ? 2 : 0, () => ({ [draw.of(['$and', '$or'])]: draw.many(0, 3, deeper) })],
    [depth > 0 ? 1 : 0, () => ({ $not: [deeper()] })],
    [1, () => ({ $in: [leafNumber(draw), numbers(draw)] })],
    [1, () => ({ [draw.of(['$isArray', '$isNumber'])]: `$${draw.of(FIELDS)}` })],
    [1, () => ({ $setIsSubset: [numbers(draw), numbers(draw)] })],
    [1, () => ({ $setEquals: [numbers(draw), numbers(draw)] })],
    [1, () => ({ [draw.of(['$anyElementTrue', '$allElementsTrue'])]: [numbers(draw)] })],
    [1, () => ({ $regexMatch: { input: leafText(draw), regex: draw.of(['^a', 'b$', '[a-c]+', '^$']) } })],
    [1, () => ({ $toBool: leafNumber(draw) })],
  ]);
}

export function array(draw, depth) {
  if (depth <= 0) return leafArray(draw);
  const rows = () => array(draw, depth - 1);
  return draw.weighted([
    [3, () => leafArray(draw)],
    [2, () => ({ $map: { input: numbers(draw), as: 'm', in: { [draw.of(['$add', '$multiply', '$eq'])]: ['$$m', numeric(draw, depth - 2)] } } })],
    [2, () => ({ $filter: { input: numbers(draw), as: 'f', cond: { [draw.of(['$gt', '$lte', '$ne'])]: ['$$f', number(draw)] } } })],
    [1, () => ({ $slice: draw.chance(0.5) ? [rows(), draw.of([-2, -1, 1, 2])] : [rows(), draw.int(-2, 2), draw.int(1, 3)] })],
    [1, () => ({ $concatArrays: draw.many(1, 2, rows) })],
    [1, () => ({ $reverseArray: rows() })],
    [1, () => ({ $sortArray: { input: { [draw.of(['$setUnion', '$setIntersection', '$setDifference'])]: [numbers(draw), numbers(draw)] }, sortBy: draw.of([1, -1]) } })],
    [1, () => ({ $range: [0, draw.int(0, 4), draw.int(1, 2)] })],
    [1, () => ({ $split: [string(draw, depth - 1), draw.of(['a', ' ', 'b'])] })],
    [1, () => ({ $zip: { inputs: [numbers(draw), numbers(draw)], ...(draw.chance(0.4) ? { useLongestLength: true, defaults: [0, 'd'] } : {}) } })],
    [1, () => ({ $objectToArray: object(draw, depth - 1) })],
    [1, () => ({ [draw.of(['$firstN', '$lastN', '$maxN', '$minN'])]: { n: draw.int(1, 3), input: numbers(draw) } })],
    [1, () => conditional(draw, rows)],
  ]);
}

export function object(draw, depth) {
  return draw.weighted([
    [2, () => ({ p: numeric(draw, depth - 1), q: string(draw, depth - 1) })],
    [1, () => ({ $mergeObjects: [guarded('o', isType('object'), {}), { x: numeric(draw, depth - 1) }] })],
    [1, () => guarded('o', isType('object'), { x: 1 })],
    [1, () => ({ $arrayToObject: { $map: { input: [1, 2], as: 'm', in: { k: { $concat: ['k', { $toString: '$$m' }] }, v: numeric(draw, depth - 1) } } } })],
    [1, () => ({ $setField: { field: 'x', input: guarded('o', isType('object'), {}), value: numeric(draw, depth - 1) } })],
    [1, () => ({ $unsetField: { field: 'y', input: guarded('o', isType('object'), {}) } })],
  ]);
}

const date = (draw) => draw.weighted([
  [2, () => leafDate(draw)],
  [1, () => ({ [draw.of(['$dateAdd', '$dateSubtract'])]: { startDate: leafDate(draw), unit: draw.of(UNITS), amount: draw.int(-3, 14) } })],
  [1, () => ({ $dateTrunc: { date: leafDate(draw), unit: draw.of(['day', 'hour', 'month', 'year', 'minute']) } })],
  [1, () => ({ $dateFromParts: { year: draw.int(1999, 2030), month: draw.int(1, 12), day: draw.int(1, 28), hour: draw.int(0, 23) } })],
]);

const conditional = (draw, make) => draw.weighted([
  [2, () => ({ $cond: draw.chance(0.5) ? [boolean(draw, 1), make(), make()] : { if: boolean(draw, 0), then: make(), else: make() } })],
  [1, () => ({ $switch: { branches: draw.many(1, 2, () => ({ case: boolean(draw, 0), then: make() })), default: make() } })],
  [1, () => ({ $ifNull: [make(), make()] })],
  [1, () => ({ $let: { vars: { v: make() }, in: '$$v' } })],
]);

export const expression = (draw, depth = 2) => draw.weighted([
  [4, () => numeric(draw, depth)],
  [3, () => string(draw, depth)],
  [2, () => boolean(draw, depth)],
  [3, () => array(draw, depth)],
  [1, () => object(draw, depth)],
  [1, () => date(draw)],
  [1, () => ({ $getField: { field: draw.of(['x', 'y']), input: guarded('o', isType('object'), {}) } })],
  [2, () => `$${draw.of([...FIELDS, 'o.x', 'o.z.w', 'q.x'])}`],
]);
