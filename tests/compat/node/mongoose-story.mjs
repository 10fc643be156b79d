// mongoose's story: models with every kind of index, validation, population, middleware, versions.
import assert from 'node:assert/strict';
import mongoose from 'mongoose';

mongoose.set('autoIndex', true);
await mongoose.connect(process.env.BATON_URI.replace('/?', '/mongoose_story?'), { serverSelectionTimeoutMS: 10000 });
await mongoose.connection.dropDatabase();

const Author = mongoose.model('Author', new mongoose.Schema({
  name: { type: String, required: true, unique: true },
  born: Date,
  place: { type: { type: String }, coordinates: [Number] },
}, { timestamps: true }).index({ place: '2dsphere' }).index({ name: 'text' }));
const bookSchema = new mongoose.Schema({
  title: String,
  author: { type: mongoose.Schema.Types.ObjectId, ref: 'Author', index: true },
  tags: { type: [String], index: true },
  prices: { type: Map, of: Number },
  price: mongoose.Schema.Types.Decimal128,
  chapters: [{ name: String, pages: Number }],
  expires: { type: Date, expires: 3600 },
}, { optimisticConcurrency: true });
bookSchema.pre('save', function () { this.$locals.saved = true; });
bookSchema.virtual('pages').get(function () { return this.chapters.reduce((sum, c) => sum + c.pages, 0); });
const Book = mongoose.model('Book', bookSchema);
await Promise.all([Author.init(), Book.init()]);
assert.deepEqual((await Book.collection.indexes()).map((i) => i.name).sort(), ['_id_', 'author_1', 'expires_1', 'tags_1']);

const ada = await Author.create({ name: 'Ada', born: new Date('1815-12-10') });
assert.ok(ada.createdAt instanceof Date);
await assert.rejects(Author.create({ name: 'Ada' }), (e) => e.code === 11000);
await assert.rejects(Author.create({}), mongoose.Error.ValidationError);
await Book.insertMany([1, 2, 3].map((n) => ({
  title: `Notes ${n}`, author: ada._id, tags: ['x', `t${n}`], prices: { eur: n }, price: `${n}.50`,
  chapters: [{ name: 'one', pages: n }, { name: 'two', pages: 10 }],
})));
const book = await Book.findOne({ tags: 't2' }).populate('author').orFail();
assert.equal(book.author.name, 'Ada');
assert.equal(book.pages, 12);
assert.equal(book.prices.get('eur'), 2);
book.chapters.push({ name: 'three', pages: 30 });
book.chapters.id(book.chapters[0]._id).pages = 5;
book.tags.pull('x');
await book.save();
const again = await Book.findById(book._id);
assert.equal(again.pages, 45);
assert.deepEqual([...again.tags], ['t2']);
const stale = await Book.findById(book._id);
again.title = 'first';
await again.save();
stale.title = 'second';
await assert.rejects(stale.save(), mongoose.Error.VersionError);
assert.equal(await Book.countDocuments({ 'chapters.pages': { $gte: 30 } }), 1);
assert.equal((await Book.updateMany({}, { $set: { 'chapters.$[c].name': 'long' } }, { arrayFilters: [{ 'c.pages': { $gte: 10 } }] })).modifiedCount, 3);
const found = await Book.findOneAndUpdate({ title: 'new' }, { $setOnInsert: { tags: ['n'] } }, { upsert: true, new: true });
assert.deepEqual([...found.tags], ['n']);
const grouped = await Book.aggregate([{ $unwind: '$tags' }, { $group: { _id: '$tags', n: { $sum: 1 } } }, { $sort: { _id: 1 } }]);
assert.deepEqual(grouped.map((g) => g._id), ['n', 't1', 't2', 't3', 'x']);
let count = 0;
for await (const document of Book.find().lean().cursor({ batchSize: 2 })) count += document.title ? 1 : 0;
assert.equal(count, 4);
const result = await Book.bulkWrite([{ deleteOne: { filter: { title: 'new' } } }, { insertOne: { document: { title: 'last' } } }]);
assert.deepEqual([result.deletedCount, result.insertedCount], [1, 1]);
await mongoose.connection.dropDatabase();
await mongoose.disconnect();
console.log('mongoose: all as told');
