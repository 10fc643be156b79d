// The packages, from the folder that run.sh installed them into ($PACKAGES): modules are otherwise sought beside the source.
import { createRequire } from 'node:module';

const load = createRequire(`${process.env.PACKAGES}/package.json`);
export const { MongoClient, Double, Int32, Long, Decimal128, ObjectId, BSON } = load('mongodb');
export const { EJSON } = BSON;
const mingo = load('mingo');
export const { Query, Aggregator } = mingo;
export const { updateMany } = load('mingo/updater');
