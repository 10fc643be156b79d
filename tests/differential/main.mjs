// Asks Baton and an independent implementation the same random things, and says where they differ.
//
//   main.mjs URI [--seed N] [--cases N] [--kinds query,aggregation,update,index] [--failures N]
//
// Cases come in worlds: a few dozen of them about the same documents. The same seed gives the same cases. A case that
// differs is made small and printed with its documents; the exit code is 1. Errors are compared only as far as both
// sides have one: where one of them refuses, the case is counted by Baton's error code and left at that, but an error
// that says Baton broke or lacks something is a failure.
import { Draw } from './draw.mjs';
import { EJSON, MongoClient } from './packages.mjs';
import { DIVERGENCES, divergence } from './divergences.mjs';
import { KINDS } from './kinds.mjs';
import { minimise } from './minimise.mjs';

const CASES_PER_WORLD = { query: 60, aggregation: 60, update: 20, index: 40 };
const SHARE = { query: 0.3, aggregation: 0.3, update: 0.15, index: 0.25 };
// Internal errors and "not implemented": nothing that is drawn here may be answered so.
const NEVER = new Set([1, 8, 238, 'MongoServerSelectionError']);

const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : process.argv[at + 1];
};

const seed = Number(option('seed', Math.floor(Math.random() * 2 ** 31)));
const cases = Number(option('cases', 6000));
const failuresMax = Number(option('failures', 5));
const kinds = option('kinds', Object.keys(KINDS).join()).split(',');

const client = await new MongoClient(process.argv[2], { serverSelectionTimeoutMS: 5000 }).connect();
const db = client.db('differential');

// What became of a case: {difference} or {outcome}.
async function run(kind, one, loaded) {
  const baton = await kind.baton(db, one, loaded);
  const reference = await kind.reference(one, db, loaded);
  if (baton.refused !== undefined && NEVER.has(baton.refused)) return { difference: { baton: `${baton.refused}: ${baton.why}`, reference: '' } };
  if (baton.refused !== undefined) return { outcome: reference.refused !== undefined ? 'refused by both' : `refused by Baton alone with ${baton.refused}`, why: baton.why };
  if (reference.refused !== undefined) return { outcome: 'refused by the reference alone', why: reference.why };
  const difference = kind.compare(one, baton, reference);
  return difference ? { difference } : { outcome: 'same' };
}

const counts = new Map();
const count = (kind, what) => counts.set(`${kind}: ${what}`, (counts.get(`${kind}: ${what}`) ?? 0) + 1);
const examples = new Map();
const started = Date.now();
let failures = 0;

async function report(name, kind, one, at) {
  const failing = async (candidate) => {
    const { difference } = await run(kind, candidate, new Map());
    return difference !== undefined && divergence(name, candidate, difference) === null;
  };
  // The world may have been changed by an earlier case; then only the whole of it fails.
  const small = await failing(one) ? await minimise(one, kind.parts.filter((part) => one[part] !== undefined && one[part] !== null), failing) : one;
  const { difference } = await run(kind, small, new Map());
  console.log(`\n${name} ${at} differs (seed ${seed}):`);
  for (const [part, value] of Object.entries(small)) {
    if (value === null || value === 0 || (typeof value === 'object' && Object.keys(value).length === 0)) continue;
    if (part !== 'other' || JSON.stringify(small.pipeline ?? '').includes('other')) console.log(`  ${part}: ${EJSON.stringify(value, { relaxed: name !== 'index' })}`);
  }
  console.log(`  Baton:     ${difference?.baton}\n  reference: ${difference?.reference}`);
}

console.log(`differential: ${cases} cases, seed ${seed}`);
for (const name of kinds) {
  const kind = KINDS[name];
  const total = Math.ceil(cases * (kinds.length === 1 ? 1 : SHARE[name]));
  let drawnWorld = null;
  let loaded = new Map();
  for (let at = 0; at < total && failures < failuresMax; at += 1) {
    if (at % CASES_PER_WORLD[name] === 0) {
      drawnWorld = kind.world(new Draw(seed * 31 + at * 7 + name.length));
      loaded = new Map();
    }
    const one = { ...drawnWorld, ...kind.draw(new Draw(seed * 1009 + at * 13 + name.length), drawnWorld) };
    const { difference, outcome, why } = await run(kind, one, loaded);
    if (difference === undefined) {
      count(name, outcome);
      if (outcome.includes('alone')) examples.set(`${name}: ${outcome}`, `${why}`.slice(0, 100));
      continue;
    }
    const number = divergence(name, one, difference);
    if (number !== null) {
      count(name, `divergence ${number}`);
      continue;
    }
    failures += 1;
    count(name, 'DIFFERENT');
    await report(name, kind, one, at);
    loaded = new Map();
  }
}
await client.close();
console.log('');
for (const [what, times] of [...counts].sort()) {
  const title = DIVERGENCES.find((rule) => what.endsWith(`divergence ${rule.number}`))?.title;
  console.log(`${String(times).padStart(6)} ${what}${title ? ` (${title})` : examples.has(what) ? ` (such as: ${examples.get(what)})` : ''}`);
}
console.log(`differential: ${failures === 0 ? 'no unexplained difference' : `${failures} differences`} in ${((Date.now() - started) / 1000).toFixed(0)} s (seed ${seed})`);
process.exit(failures === 0 ? 0 : 1);
