// Where the reference is known to differ from MongoDB. A case that differs and that a rule applies to is not a failure,
// but counted under the rule's number. A rule says what MongoDB's documentation says, and applies to as little as it can.
import { canonical } from './compare.mjs';
import { ObjectId } from './packages.mjs';

// Every test in a filter, as [path, operator, operand], those below logical operators and $elemMatch too.
function* tests(filter, path = '') {
  for (const [name, operand] of Object.entries(filter ?? {})) {
    if (['$and', '$or', '$nor'].includes(name)) for (const inner of operand) yield* tests(inner, path);
    else if (name === '$not') yield* tests(operand, path);
    else if (name.startsWith('$')) {
      yield [path, name, operand];
      if (name === '$elemMatch') yield* tests(operand, path);
    } else {
      const full = path ? `${path}.${name}` : name;
      if (operand !== null && typeof operand === 'object' && Object.keys(operand)[0]?.startsWith('$')) yield* tests(operand, full);
      else yield [full, '$eq', operand];
    }
  }
}

const stagesOf = (stages) => stages.flatMap((stage) => [stage, ...stagesOf(stage.$unionWith?.pipeline ?? []),
  ...stagesOf(stage.$lookup?.pipeline ?? []), ...Object.values(stage.$facet ?? {}).flatMap(stagesOf)]);
const filtersOf = (one) => (one.pipeline ? stagesOf(one.pipeline).flatMap((stage) => stage.$match ?? []) : [one.filter]);
const testsOf = (one) => filtersOf(one).flatMap((filter) => [...tests(filter)]);
const at = (doc, path) => path.split('.').reduce((value, name) => value?.[name], doc);
// Numbers of several types are one value.
const twice = (value) => Array.isArray(value) && new Set(value.map(canonical)).size < value.length;
const isStructure = (value) => value instanceof ObjectId || Array.isArray(value)
  || (value !== null && typeof value === 'object' && !value._bsontype && !(value instanceof Date));
const sortsOf = (one) => (one.pipeline ? stagesOf(one.pipeline).flatMap((stage) => stage.$sort ?? []) : [one.sort ?? {}]);
const uses = (one, ...names) => { const all = JSON.stringify([one.pipeline, one.update, one.filter, one.projection]); return names.some((name) => all.includes(`"${name}"`)); };
// All documents within a value, itself included.
function* parts(value) {
  if (value === null || typeof value !== 'object' || value._bsontype || value instanceof Date) return;
  if (!Array.isArray(value)) yield value;
  for (const inner of Object.values(value)) yield* parts(inner);
}
const unwindsThroughArrays = (one) => stagesOf(one.pipeline ?? []).some((stage) => {
  const path = (stage.$unwind?.path ?? stage.$unwind)?.slice(1);
  return path && one.docs.concat(one.other ?? []).some((doc) => (path.includes('.') && Array.isArray(doc[path.split('.')[0]])) || /\{\}|""/.test(JSON.stringify(doc[path] ?? null)));
});
const ALL = ['query', 'aggregation', 'update'];

export const DIVERGENCES = [
  {
    number: 1,
    title: 'order of ObjectIds, arrays and documents',
    why: 'BSON has an order of types (null, numbers, text, objects, arrays, binary, ObjectId, boolean, date), sorts arrays by '
      + 'their least or greatest element, and compares documents field by field in their order. The reference sorts '
      + 'ObjectIds behind all types it knows, and documents by their sorted names.',
    kinds: ['query', 'aggregation'],
    applies: (one, difference) => (one.pipeline !== undefined && uses(one, '$sort') && difference.onlyOrder) || sortsOf(one).some((sort) => Object.keys(sort).some((path) => one.docs.some((doc) => (
      isStructure(at(doc, path)) || (path.includes('.') && Array.isArray(doc[path.split('.')[0]])))))),
  },
  {
    number: 2,
    title: 'bitwise tests of what is no integer',
    why: '$bitsAllSet and the like match only numbers without a fraction, and binary data. The reference matches missing fields, '
      + 'booleans, text and fractions.',
    kinds: ALL,
    applies: (one) => testsOf(one).some(([, operator]) => operator.startsWith('$bits')),
  },
  {
    number: 3,
    title: '$mod of fractions and of what is no number',
    why: '$mod cuts a fraction off before it divides, and matches numbers only. The reference divides fractions, and takes '
      + 'booleans, dates, text and null for numbers.',
    kinds: ALL,
    applies: (one) => testsOf(one).some(([, operator]) => operator === '$mod'),
  },
  {
    number: 4,
    title: '$all of a single value',
    why: '{$all: [v]} is {$and: [{f: v}]}: it matches a field that is v itself. The reference matches arrays only.',
    kinds: ALL,
    applies: (one) => testsOf(one).some(([, operator]) => operator === '$all'),
  },
  {
    number: 5,
    title: 'paths through arrays',
    why: 'A path through an array tests each element by itself: {"q.y": {$size: 0}} asks for a document in q whose y is an empty '
      + 'array. The reference collects the values into an array and tests that: $size, $type, $elemMatch and $exists see it, '
      + 'and arrays below arrays are flattened or not by the depth of the path. A number in a path is an index or a name; '
      + 'where it is both to the elements, MongoDB tries both. $unwind does not go through arrays at all, and the reference does; '
      + 'it also drops documents without fields, and empty text.',
    kinds: ALL,
    applies: (one) => unwindsThroughArrays(one) || testsOf(one).some(([path, operator, operand]) => /\.\d/.test(path) || /^\w+\.k/.test(path)
      || (path.includes('.') && (operand === null || ['$size', '$type', '$elemMatch', '$exists', '$in', '$nin'].includes(operator)))),
  },
  {
    number: 6,
    title: 'empty buckets and counts of nothing',
    why: '$bucket and $bucketAuto give only buckets that hold something, and $count of no documents gives no document. The '
      + 'reference gives them with a count of 0: they are removed from its results before these are compared (kinds.mjs).',
    kinds: [],
    applies: () => false,
  },
  {
    number: 7,
    title: '$toUpper beyond ASCII',
    why: '$toUpper and $toLower change ASCII letters only, as the manual says. The reference changes all.',
    kinds: ALL,
    applies: (one) => uses(one, '$toUpper') && JSON.stringify([one.docs, one.pipeline, one.update, one.filter]).includes('Zoë'),
  },
  {
    number: 8,
    title: 'standard deviations of too few numbers',
    why: '$stdDevSamp of fewer than two numbers and $stdDevPop of none are null. The reference gives 0 and NaN.',
    kinds: ['aggregation'],
    applies: (one) => uses(one, '$stdDevSamp', '$stdDevPop'),
  },
  {
    number: 9,
    title: '$lookup by a field that is an array',
    why: 'An array in localField stands for its elements. The reference gives null for elements that match nothing; and where an '
      + 'array in foreignField has the value twice, it joins the document twice.',
    kinds: ['aggregation'],
    applies: (one) => stagesOf(one.pipeline).some(({ $lookup }) => $lookup?.localField && (one.docs.concat(one.other ?? []).some((doc) => Array.isArray(doc[$lookup.localField]))
      || one.other?.some((doc) => twice(doc[$lookup.foreignField])))),
  },
  {
    number: 10,
    title: '$push with modifiers to a field that is not there',
    why: '$slice, $sort and $position apply to the array that results, also to a new one. The reference stores $each as it is.',
    kinds: ['update'],
    applies: (one) => Object.entries(one.update.$push ?? {}).some(([path, how]) => (how?.$slice ?? how?.$sort) !== undefined && one.docs.some((doc) => at(doc, path) === undefined)),
  },
  {
    number: 11,
    title: '$addToSet where something is twice already',
    why: '$addToSet adds what is not there, each value once, and leaves duplicates that were there alone. The reference makes a '
      + 'set of both together and adds nothing unless that is longer; into a new field it puts duplicates of $each.',
    kinds: ['update'],
    applies: (one) => Object.entries(one.update.$addToSet ?? {}).some(([path, value]) => {
      return twice(value?.$each) || one.docs.some((doc) => twice(at(doc, path)));
    }),
  },
  {
    number: 12,
    title: '$min, $max and $sort of values of several types',
    why: '$min, $max and the $sort of $push compare by the order of BSON types, documents field by field. See 1.',
    kinds: ['update'],
    applies: (one) => Object.keys({ ...one.update.$min, ...one.update.$max }).some((path) => one.docs.some((doc) => isStructure(at(doc, path)) || typeof at(doc, path) === 'boolean'))
      || Object.entries(one.update.$push ?? {}).some(([path, how]) => how?.$sort !== undefined && one.docs.some((doc) => Array.isArray(at(doc, path)) && at(doc, path).some((item) => item === null || typeof item === 'object'))),
  },
  {
    number: 13,
    title: 'the year of an ISO week',
    why: '%G and $isoWeekYear are the year that the ISO week belongs to: 2025 for the last day of 2024. The reference gives the calendar year.',
    kinds: ALL,
    applies: (one) => uses(one, '$isoWeekYear') || JSON.stringify(one).includes('%G'),
  },
  {
    number: 14,
    title: '$dateDiff of instants within their unit',
    why: '$dateDiff counts how often the unit begins between its dates. The reference divides what lies between them.',
    kinds: ALL,
    applies: (one) => uses(one, '$dateDiff'),
  },
  {
    number: 15,
    title: 'the last days of a month',
    why: 'A year after 29 February is 28 February: $dateAdd and $dateSubtract stay in the month. The reference goes on into March.',
    kinds: ALL,
    applies: (one) => uses(one, '$dateAdd', '$dateSubtract') && (JSON.stringify(one).includes('"unit":"year"') || JSON.stringify(one).includes('"unit":"month"')),
  },
  {
    number: 16,
    title: '$zip with an empty array',
    why: '$zip is as long as its shortest input. The reference overlooks an empty one.',
    kinds: ALL,
    applies: (one) => uses(one, '$zip'),
  },
  {
    number: 17,
    title: 'new fields below what is no document',
    why: 'Where a path leads through an array, $addFields and $project set the field in each element; where it leads through anything else, a '
      + 'document takes its place, empty if there is no value; a document in the stage stands for paths, too. The reference '
      + 'leaves what is in the way, and replaces a document by a document.',
    kinds: ALL,
    applies: (one) => (one.pipeline ? stagesOf(one.pipeline) : [one.update].flat()).some((stage) => Object.entries(stage?.$addFields ?? stage?.$set ?? stage?.$project ?? {}).some(([name, value]) => (name.includes('.') && !stage.$project)
      || (value !== null && typeof value === 'object' && !value._bsontype && !Array.isArray(value) && !Object.keys(value)[0]?.startsWith('$')))),
  },
  {
    number: 18,
    title: '$round of halves',
    why: '$round to places rounds halves to the even neighbour: 10.75 to one place is 10.8. The reference gives 10.7.',
    kinds: ALL,
    applies: (one) => uses(one, '$round'),
  },
  {
    number: 19,
    title: '$dateTrunc to months and years long ago',
    why: '$dateTrunc of the second day of 1970 to a month is the first. The reference gives the first of 1971.',
    kinds: ALL,
    applies: (one) => uses(one, '$dateTrunc'),
  },
  {
    number: 20,
    title: '$type of elements',
    why: '$type matches an array for its elements, too. The reference looks at the array alone.',
    kinds: ALL,
    applies: (one) => testsOf(one).some(([path, operator]) => operator === '$type' && one.docs.concat(one.other ?? []).some((doc) => Array.isArray(at(doc, path)))),
  },
  {
    number: 21,
    title: '$week',
    why: '$week counts from 0, and week 1 begins with the first Sunday of the year. The reference counts from another day.',
    kinds: ALL,
    applies: (one) => uses(one, '$week'),
  },
  {
    number: 22,
    title: '$elemMatch on fields of what is no document',
    why: '$elemMatch with conditions on fields matches elements that are documents. The reference compares others as a whole.',
    kinds: ALL,
    applies: (one) => testsOf(one).some(([path, operator, operand]) => operator === '$elemMatch' && !Object.keys(operand)[0]?.startsWith('$')
      && one.docs.concat(one.other ?? []).some((doc) => Array.isArray(at(doc, path)) && at(doc, path).some((item) => !isStructure(item)))),
  },
  {
    number: 23,
    title: '$trunc of doubles',
    why: '$trunc to places takes a double for what it is: 10.7 is a little less than that, and 10.6 to one place. The reference gives 10.7.',
    kinds: ALL,
    applies: (one) => uses(one, '$trunc'),
  },
  {
    number: 24,
    title: '$min and $max of what expressions give',
    why: '$min and $max of a single operand look into it if it is an array, and are null if that is empty; one of several is above all '
      + 'numbers, as arrays are; what is not there does not count. The reference gives the array, or null.',
    kinds: ALL,
    applies: (one) => [...parts([one.pipeline, one.update])].some((part) => [part.$min, part.$max].some((operand) => Array.isArray(operand)
      && operand.some((inner) => inner !== null && typeof inner === 'object' && !inner._bsontype))),
  },
  {
    number: 25,
    title: 'leaving out a part of what was copied',
    why: 'A field that an expression copied is a value of its own: to leave out a part of the one, as $unwind does with an empty array, leaves the '
      + 'other whole. In the reference both are one.',
    kinds: ALL,
    applies: (one) => stagesOf(one.pipeline ?? []).some((stage) => JSON.stringify(stage.$addFields ?? stage.$set ?? null).includes('"$'))
      && stagesOf(one.pipeline ?? []).some((stage) => Object.entries(stage.$project ?? {}).some(([path, value]) => path.includes('.') && !value) || [stage.$unset ?? []].flat().some((path) => path.includes('.'))
        || (stage.$unwind?.path ?? stage.$unwind ?? '').includes('.')),
  },
  {
    number: 26,
    title: '$pull by conditions on fields',
    why: '$pull with conditions on fields takes elements that are documents and match them. The reference takes others, too, or compares them as a whole.',
    kinds: ALL,
    applies: (one) => [one.update].flat().some((update) => Object.entries(update?.$pull ?? {}).some(([path, value]) => value !== null
      && typeof value === 'object' && !value._bsontype && !Array.isArray(value) && !Object.keys(value)[0]?.startsWith('$')
      && one.docs.some((doc) => Array.isArray(at(doc, path)) && at(doc, path).some((item) => !isStructure(item))))),
  },
];

// The number of the divergence that may explain why a case's results differ, or null.
export const divergence = (kind, one, difference) => DIVERGENCES.find((rule) => rule.kinds.includes(kind) && rule.applies(one, difference))?.number ?? null;
