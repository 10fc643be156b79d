// The Node driver's story.
import assert from 'node:assert/strict';
import { MongoClient, Long, Decimal128, ObjectId, MongoServerError, MongoBulkWriteError } from 'mongodb';

const commands = [];
const client = new MongoClient(process.env.BATON_URI, {
  monitorCommands: true, compressors: ['zlib'], serverSelectionTimeoutMS: 10000, appname: 'node-story',
});
client.on('commandStarted', (event) => commands.push(event));
await client.connect();
const db = client.db('node_story');
await db.dropDatabase();

// CRUD
const carts = db.collection('carts');
const many = await carts.insertMany(Array.from({ length: 500 }, (_, n) => ({
  _id: n, user: `u${n % 5}`, total: n, big: Long.fromNumber(2 ** 40), price: Decimal128.fromString('1.10'),
})));
assert.equal(many.insertedCount, 500);
assert.ok(commands.at(-1).command.txnNumber !== undefined, 'retryable writes are on');
assert.equal((await carts.findOne({ _id: 7 })).price.toString(), '1.10');
assert.equal((await carts.updateMany({ user: 'u1' }, { $inc: { total: 1 } })).modifiedCount, 100);
assert.equal((await carts.replaceOne({ _id: 0 }, { user: 'u0', total: 0 })).modifiedCount, 1);
assert.equal((await carts.findOneAndUpdate({ _id: 1 }, { $set: { x: 1 } }, { returnDocument: 'after' })).x, 1);
assert.equal((await carts.deleteOne({ _id: 499 })).deletedCount, 1);
assert.equal(await carts.countDocuments({ user: 'u2' }), 100);
assert.deepEqual((await carts.distinct('user')).sort(), ['u0', 'u1', 'u2', 'u3', 'u4']);

// Cursors with batches
let seen = 0;
for await (const document of carts.find({}, { batchSize: 50, sort: { _id: 1 } })) assert.equal(document._id, seen++);
assert.equal(seen, 499);
const early = carts.find({}, { batchSize: 2 });
await early.next();
await early.close();

// Bulk writes
const bulk = await carts.bulkWrite([
  { insertOne: { document: { _id: 'a' } } },
  { updateOne: { filter: { _id: 'b' }, update: { $set: { x: 1 } }, upsert: true } },
  { deleteMany: { filter: { user: 'u3' } } },
]);
assert.deepEqual([bulk.insertedCount, bulk.upsertedCount, bulk.deletedCount], [1, 1, 100]);
await assert.rejects(carts.insertMany([{ _id: 'c' }, { _id: 'a' }, { _id: 'd' }], { ordered: false }), (error) => {
  assert.ok(error instanceof MongoBulkWriteError);
  return error.insertedCount === 2 && error.writeErrors[0].code === 11000;
});

// Indexes
assert.equal(await carts.createIndex({ user: 1, total: -1 }), 'user_1_total_-1');
await carts.createIndex({ mail: 1 }, { unique: true, sparse: true });
assert.equal((await carts.indexes()).length, 3);
assert.match(JSON.stringify(await carts.find({ user: 'u1' }).explain()), /IXSCAN/);
await carts.insertOne({ mail: 'x' });
await assert.rejects(carts.insertOne({ mail: 'x' }), (e) => e instanceof MongoServerError && e.code === 11000 && e.keyValue.mail === 'x');
await carts.dropIndex('mail_1');

// Aggregation
const sums = await carts.aggregate([
  { $match: { user: { $in: ['u1', 'u2'] } } },
  { $group: { _id: '$user', sum: { $sum: '$total' }, n: { $count: {} } } }, { $sort: { _id: 1 } },
]).toArray();
assert.deepEqual(sums.map((d) => [d._id, d.n]), [['u1', 100], ['u2', 100]]);

// Sessions, and causal consistency
const session = client.startSession();
await carts.insertOne({ _id: 'causal' }, { session, writeConcern: { w: 'majority' } });
assert.ok(await carts.findOne({ _id: 'causal' }, { session, readConcern: { level: 'majority' } }));
assert.ok(session.operationTime && session.clusterTime);
await session.endSession();

// Changed options, unacknowledged writes, capped collections, administration
await db.collection('silent', { writeConcern: { w: 0 } }).insertOne({ _id: 1 });
await db.createCollection('log', { capped: true, size: 100000, max: 3 });
await db.collection('log').insertMany([1, 2, 3, 4].map((_id) => ({ _id })));
assert.deepEqual((await db.collection('log').find().toArray()).map((d) => d._id), [2, 3, 4]);
await db.command({ collMod: 'carts', validator: { total: { $type: 'number' } }, validationLevel: 'strict' });
await assert.rejects(carts.insertOne({ total: 'text' }), (e) => e.code === 121);
await carts.rename('baskets');
assert.ok((await db.listCollections().toArray()).some((c) => c.name === 'baskets' && c.type === 'collection'));
assert.equal((await db.stats()).db, 'node_story');
assert.equal((await db.admin().serverInfo()).ok, 1);
await assert.rejects(db.command({ nosuchcommand: 1 }), (e) => e.code === 59 && e.codeName === 'CommandNotFound');
await assert.rejects(db.collection('baskets').find({ $nothing: 1 }).toArray(), (e) => e.code === 2);
assert.ok(ObjectId.isValid((await db.collection('ids').insertOne({})).insertedId));

// A report is of low class by its application's name, whichever of a pool's connections it asks on
const report = new MongoClient(process.env.BATON_URI, { appname: 'report-nightly', maxPoolSize: 8 });
const ownClass = async (of, comment = new ObjectId().toString()) => {
  const shown = await of.db('admin').aggregate([{ $currentOp: {} }], { comment }).toArray();
  return shown.find((op) => op.command?.comment === comment).class;
};
const classes = async () => [...new Set(await Promise.all(Array.from({ length: 40 }, () => ownClass(report))))];
const configure = async (rules) => {
  const { config } = await client.db('admin').command({ replSetGetConfig: 1 });
  config.version += 1;
  config.settings.priority = { rules };
  await client.db('admin').command({ replSetReconfig: config });
};
assert.deepEqual(await classes(), ['normal']);
await configure([{ match: { appName: 'report*' }, priority: 'low' }]);
assert.deepEqual([await classes(), await ownClass(client)], [['low'], 'normal']);
assert.ok((await client.db('admin').command({ serverStatus: 1 })).priority.rules[0].matched >= 40);
await configure([]);
assert.deepEqual(await classes(), ['normal']);
await report.close();

await db.dropDatabase();
await client.close();
console.log('the Node driver: all as told');
