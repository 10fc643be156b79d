// When two results are the same: numbers by value (the reference has one type of them) to ten digits, documents by their
// fields whatever their order, rows in order only where the case determines it.
import { Decimal128, Double, Int32, Long, ObjectId } from './packages.mjs';

// The same value for the reference: its only numbers are JavaScript's.
export function plain(value) {
  if (value instanceof Double || value instanceof Int32) return value.valueOf();
  if (value instanceof Long) return value.toNumber();
  if (value instanceof Decimal128) return Number(value.toString());
  if (value instanceof Date) return new Date(value);
  if (value instanceof ObjectId || value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(plain);
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, plain(inner)]));
}

// A value as text that is equal for equal values.
export function canonical(value) {
  const flat = plain(value);
  if (flat === undefined) return 'null';
  if (typeof flat === 'bigint') return canonical(Number(flat));
  if (typeof flat === 'number') return Number.isFinite(flat) ? String(Number(flat.toPrecision(10)) + 0) : String(flat);
  if (flat instanceof Date) return `date(${+flat})`;
  if (flat instanceof ObjectId) return `id(${flat.toHexString()})`;
  if (flat === null || typeof flat !== 'object') return JSON.stringify(flat);
  if (Array.isArray(flat)) return `[${Array.from(flat, canonical).join()}]`;
  const fields = Object.entries(flat).filter(([, inner]) => inner !== undefined);
  return `{${fields.map(([name, inner]) => `${JSON.stringify(name)}:${canonical(inner)}`).sort().join()}}`;
}

// Arrays that stand for sets have no order: `$addToSet` gives its values in any.
const asSets = (rows, names) => rows.map((row) => (names.length === 0 ? row : Object.fromEntries(Object.entries(row).map(([name, value]) => [
  name, names.includes(name) && Array.isArray(value) ? [...value].sort((x, y) => (canonical(x) < canonical(y) ? -1 : 1)) : value]))));

// Null if two lists of rows are the same, or what differs.
export function difference(baton, reference, ordered, setNames = []) {
  const texts = [baton, reference].map((rows) => asSets(rows, setNames).map(canonical));
  if (!ordered) texts.forEach((rows) => rows.sort());
  if (texts[0].join('\n') === texts[1].join('\n')) return null;
  const at = texts[0].findIndex((row, i) => row !== texts[1][i]);
  const i = at < 0 ? texts[0].length : at;
  const onlyOrder = [...texts[0]].sort().join('\n') === [...texts[1]].sort().join('\n');
  return { onlyOrder, row: i, baton: texts[0][i] ?? '(no more)', reference: texts[1][i] ?? '(no more)', rows: texts.map((rows) => rows.length) };
}
