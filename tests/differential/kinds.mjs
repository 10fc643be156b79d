// The kinds of cases: how one is drawn, what Baton answers, what is to compare with, and which parts of it may shrink.
//
// A case holds its documents, so that it can be run again by itself. An answer is {rows}, or {refused, why} for an error.
import { Aggregator, Double, EJSON, Query, updateMany } from './packages.mjs';
import { canonical, difference, plain } from './compare.mjs';
import { PATHS, documents, number, scalar } from './documents.mjs';
import { filter, projection, sort, valueFor } from './queries.mjs';
import { SORTABLE, pipeline } from './pipelines.mjs';
import { update } from './updates.mjs';

const answer = async (ask) => {
  try {
    return { rows: await ask() };
  } catch (error) {
    if (error.name?.startsWith('MongoNetwork')) throw error;
    return { refused: error.code ?? error.name, why: error.message };
  }
};

// Puts the case's documents in place unless they are there already.
const place = async (db, name, docs, loaded) => {
  if (loaded.get(name) === docs) return;
  await db.collection(name).deleteMany({});
  if (docs.length > 0) await db.collection(name).insertMany(docs, { forceServerObjectId: true });
  loaded.set(name, docs);
};

const world = (draw) => ({ docs: documents(draw, draw.int(5, 25), draw.of([0.02, 0.08, 0.15])), other: documents(draw, 6, 0.05) });

const query = {
  world,
  parts: ['filter', 'sort', 'projection'],
  draw: (draw) => ({
    filter: filter(draw), projection: draw.chance(0.3) ? projection(draw) : {}, sort: draw.chance(0.5) ? sort(draw, SORTABLE) : {},
    skip: draw.chance(0.1) ? draw.int(0, 5) : 0, limit: draw.chance(0.2) ? draw.int(1, 8) : 0,
  }),
  async baton(db, one, loaded) {
    await place(db, 'docs', one.docs, loaded);
    const { projection: fields, sort: order, skip, limit } = one;
    return answer(() => db.collection('docs').find(one.filter, { projection: fields, sort: order, skip, limit }).toArray());
  },
  reference: (one) => answer(() => {
    let cursor = new Query(plain(one.filter)).find(one.docs.map(plain), one.projection);
    if (Object.keys(one.sort).length > 0) cursor = cursor.sort(one.sort);
    if (one.skip) cursor = cursor.skip(one.skip);
    if (one.limit) cursor = cursor.limit(one.limit);
    return cursor.all().map(plain);
  }),
  // Without indexes and without a sort, documents come by their `_id`, and so they do from the reference.
  compare: (one, baton, reference) => difference(baton.rows, reference.rows, true),
};

// Divergence 6: the reference gives what is empty, too: buckets, and a count of nothing.
const withoutEmpty = (stages) => stages.flatMap((stage) => {
  const counted = stage.$count ?? (stage.$bucket || stage.$bucketAuto ? 'count' : null);
  const inner = stage.$facet ? { $facet: Object.fromEntries(Object.entries(stage.$facet).map(([name, below]) => [name, withoutEmpty(below)])) } : stage;
  return counted ? [inner, { $match: { [counted]: { $gt: 0 } } }] : [inner];
});

const aggregation = {
  world,
  parts: ['pipeline'],
  draw(draw) {
    const { stages, ordered } = pipeline(draw);
    return { pipeline: stages, ordered };
  },
  async baton(db, one, loaded) {
    await place(db, 'docs', one.docs, loaded);
    await place(db, 'other', one.other, loaded);
    return answer(() => db.collection('docs').aggregate(one.pipeline).toArray());
  },
  reference: (one) => answer(() => new Aggregator(withoutEmpty(plain(one.pipeline)), { collectionResolver: () => one.other.map(plain) }).run(one.docs.map(plain)).map(plain)),
  compare(one, baton, reference) {
    const sets = one.pipeline.flatMap((stage) => Object.entries(stage.$group ?? {}).filter(([, how]) => how?.$addToSet !== undefined).map(([name]) => name));
    return difference(baton.rows, reference.rows, one.ordered, sets);
  },
};

const change = {
  world,
  parts: ['update', 'filter', 'arrayFilters'],
  draw: (draw) => update(draw),
  async baton(db, one, loaded) {
    await place(db, 'docs', one.docs, loaded);
    loaded.delete('docs');
    return answer(async () => {
      const { matchedCount, modifiedCount } = await db.collection('docs').updateMany(one.filter, one.update, one.arrayFilters.length ? { arrayFilters: one.arrayFilters } : {});
      return [{ matchedCount, modifiedCount }, ...await db.collection('docs').find().toArray()];
    });
  },
  reference: (one) => answer(() => {
    const docs = one.docs.map(plain);
    // The reference's updater knows no expressions: what is to match, and pipelines, are its other parts' business.
    const query = new Query(plain(one.filter));
    if (Array.isArray(one.update)) return docs.map((doc) => (query.test(doc) ? new Aggregator(plain(one.update)).run([doc])[0] : doc)).map(plain);
    const matching = docs.filter((doc) => query.test(doc)).map((doc) => doc._id);
    updateMany(docs, { _id: { $in: matching } }, plain(one.update), { arrayFilters: plain(one.arrayFilters) });
    return docs.map(plain);
  }),
  // The reference's own counts are not compared: it counts a write of the same value as a modification.
  compare: (one, baton, reference) => difference(baton.rows.slice(1), reference.rows, true),
};

const INDEXABLE = ['a', 'b', 'n', 'i', 's', 'd', 't', 'o', 'o.x', 'o.y', 'o.z.w', 'r', 'q.x', 'q.y', 'q', 'o.k', 'r.0', 'q.0.x', 'q.k'];
const PARTIAL = (draw) => draw.of([{ n: { $gt: 2 } }, { s: { $exists: true } }, { a: { $type: 'number' } }, { i: { $lte: 5 } }, { t: true },
  { $and: [{ n: { $gte: 0 } }, { s: { $gt: 'a' } }] }, { 'o.x': { $lt: new Double(4) } }]);

const index = (draw) => {
  if (draw.chance(0.12)) return [{ [draw.of(['a', 'n', 's', 'd', 'o.y', 'o'])]: 'hashed' }, {}];
  const keys = Object.fromEntries(draw.some(draw.chance(0.1) ? [...INDEXABLE, '_id'] : INDEXABLE, 1, 3).map((path) => [path, draw.of([1, 1, -1])]));
  const options = draw.chance(0.25) ? { partialFilterExpression: PARTIAL(draw) } : draw.chance(0.2) ? { sparse: true } : {};
  if (draw.chance(0.1)) options.unique = true;
  return [keys, options];
};

// Every value with its exact type: here Baton is compared with itself.
const exact = { promoteValues: false };
const texts = (rows) => rows.map((row) => EJSON.stringify(row, { relaxed: false }));

const onIndexed = {
  world: (draw) => ({
    docs: documents(draw, draw.int(20, 60), draw.of([0.05, 0.15, 0.3])),
    indexes: draw.many(2, 6, () => index(draw)),
    // Some indexes are built over documents, some kept up to date by their insertion.
    built: draw.chance(0.5),
  }),
  parts: ['indexes', 'ask', 'filter', 'sort', 'projection', 'update'],
  draw(draw, { indexes }) {
    const keyed = indexes.flatMap(([keys]) => Object.keys(keys));
    // Mostly on indexed paths, often together, as the planner likes it.
    const paths = draw.chance(0.75) ? [...keyed, ...draw.some(PATHS, 0, 2)] : PATHS;
    const one = { ask: draw.weighted([[10, () => 'find'], [1, () => 'count'], [1, () => 'distinct'], [1, () => 'aggregate'], [2, () => 'update'], [1, () => 'delete']]) };
    one.filter = draw.chance(0.15) ? { [draw.of(paths)]: valueFor(draw, draw.of(paths)) } : filter(draw, 2, true, paths);
    one.sort = draw.chance(0.6) ? sort(draw, paths) : {};
    one.projection = draw.chance(0.4) ? projection(draw, paths.filter((path) => !/\.\d/.test(path) && path !== '_id').concat('n')) : {};
    one.limit = draw.chance(0.2) && Object.keys(one.sort).length > 0 ? draw.int(1, 10) : 0;
    one.skip = one.limit && draw.chance(0.3) ? draw.int(1, 4) : 0;
    // Not one that leaves documents out, for whoever hints at it gets what is in it; nor one whose keys another has.
    const usable = indexes.filter(([keys, options]) => !options.sparse && !options.partialFilterExpression
      && indexes.filter(([other]) => JSON.stringify(other) === JSON.stringify(keys)).length === 1);
    one.hint = usable.length > 0 && draw.chance(0.2) ? draw.of(usable)[0] : null;
    one.path = draw.of(paths);
    one.update = draw.of([{ $inc: { n: 1 } }, { $set: { [draw.of(['a', 's', 'i'])]: scalar(draw) } }, { $push: { r: number(draw) } },
      { $unset: { [draw.of(['a', 'o', 'q'])]: '' } }, { $set: { q: [{ x: number(draw) }] } }]);
    return one;
  },
  async place(db, one, loaded) {
    if (loaded.get('indexed') !== one.docs || loaded.get('indexes') !== one.indexes) {
      const collection = db.collection('indexed');
      await collection.drop();
      if (one.built && one.docs.length > 0) await collection.insertMany(one.docs);
      for (const [keys, options] of one.indexes) {
        // Refused where the documents do not allow it: keys that are twice, parallel arrays, arrays to hash.
        await collection.createIndex(keys, options).catch(() => {});
      }
      if (!one.built && one.docs.length > 0) await collection.insertMany(one.docs, { ordered: false }).catch(() => {});
      // What an index refused, the other collection must not have either.
      const there = new Set((await collection.find({}, { projection: { _id: 1 } }).hint({ $natural: 1 }).toArray()).map((row) => row._id));
      loaded.set('indexed', one.docs).set('indexes', one.indexes).set('kept', one.docs.filter((doc) => there.has(doc._id)));
    }
    await place(db, 'plain', loaded.get('kept'), loaded);
  },
  async ask(db, name, one, loaded) {
    const collection = db.collection(name);
    const hint = name === 'plain' ? { $natural: 1 } : one.hint ?? undefined;
    const options = { ...exact, ...(hint ? { hint } : {}) };
    const { sort: order, projection: fields, limit, skip } = one;
    switch (one.ask) {
      case 'count': return [await collection.countDocuments(one.filter, options)];
      // Distinct gives its values in the order it meets them; numbers that are equal are one, of whatever type came first.
      case 'distinct': return (await collection.distinct(one.path, one.filter, { promoteValues: true })).map(canonical).sort();
      case 'aggregate': return texts(await collection.aggregate([{ $match: one.filter }, { $sort: { ...order, _id: 1 } }, { $project: { _id: 1, [one.path]: 1 } }], options).toArray());
      case 'update':
      case 'delete': {
        loaded.delete(name);
        const how = name === 'plain' ? { hint } : {};
        const done = one.ask === 'update' ? await collection.updateMany(one.filter, one.update, how).catch((error) => ({ refused: error.code }))
          : await collection.deleteMany(one.filter, how);
        // An index may refuse an update in the middle; then nothing is left to compare.
        if (done.refused) return { refused: done.refused };
        const check = await db.command({ validate: name });
        if (!check.valid || check.warnings.length > 0) return ['invalid', ...check.errors, ...check.warnings];
        return [done.modifiedCount ?? done.deletedCount, ...texts(await collection.find({}, { ...exact, hint: { $natural: 1 } }).toArray())];
      }
      default: {
        const rows = texts(await collection.find(one.filter, { ...options, sort: order, projection: fields, limit, skip }).toArray());
        return Object.keys(order).length > 0 ? rows : rows.sort();
      }
    }
  },
  async baton(db, one, loaded) {
    await onIndexed.place(db, one, loaded);
    return answer(() => onIndexed.ask(db, 'indexed', one, loaded));
  },
  reference: (one, db, loaded) => answer(() => onIndexed.ask(db, 'plain', one, loaded)),
  compare(one, baton, reference) {
    if (baton.rows.refused) return null;
    const [with_, without] = [baton.rows, reference.rows].map((rows) => rows.map(String));
    if (with_.join('\n') === without.join('\n')) return null;
    const row = with_.findIndex((text, i) => text !== without[i]);
    const i = row < 0 ? with_.length : row;
    return { row: i, baton: with_[i] ?? '(no more)', reference: without[i] ?? '(no more)', rows: [with_.length, without.length] };
  },
};

export const KINDS = { query, aggregation, update: change, index: onIndexed };
