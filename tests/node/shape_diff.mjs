// Compares belljar's shapes with ajv, an independent implementation of JSON Schema 2020-12.
//
//     node shape_diff.mjs SHAPE_TOOL [SEED [DOCUMENTS]]
//
// For every shape that SHAPE_TOOL knows, documents are generated from its published schema: valid
// ones, ones with a few random changes, and noise. Both must come to the same verdict, and what
// belljar encodes must be valid. The only differences, as shape.h says:
//
//   belljar takes more   null for an optional member; choices in any case where the row says so.
//                        Both are undone in the copy that ajv sees.
//   belljar takes less   lengths of strings are bytes; no NUL in a string; integers have 64 bits.
//                        Such a refusal must name its reason, and the named value must show it.

import { spawnSync } from "node:child_process";

import Ajv from "ajv/dist/2020.js";

const [tool, seedText = "20260728", countText = "3000"] = process.argv.slice(2);
const seed = Number(seedText);
const count = Number(countText);

// --- randomness that can be repeated --------------------------------------------------------------

let state = seed >>> 0;

// mulberry32
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), state | 1);
  t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}

const below = (n) => Math.floor(random() * n);
const chance = (p) => random() < p;
const pick = (list) => list[below(list.length)];

// --- documents ------------------------------------------------------------------------------------

const LETTERS = [..."abcxyzRGB019 _-/\"\\\n\u007f"];
const WIDE = [..."äß€語\u{1f514}\u0000\u2028"];
const NAMES = ["x", "nam", "Name", "whole_", "", "__proto__", "constructor", "toString", "leaf"];
const NUMBERS = [0, -0, 1, -1, 2, 10, 11, 0.5, 1.5, -5, -6, 99.5, 99.6, 100, 101, 2 ** 53, 1e15];
const HUGE = [2 ** 63, -(2 ** 63), 1e19, -1e300];

function text(length) {
  const wide = chance(0.1) ? 0.7 : 0.002;
  let result = "";
  for (let i = 0; i < length; i++) result += chance(wide) ? pick(WIDE) : pick(LETTERS);
  return result;
}

// The reader of documents takes no NUL in a name.
const key = (length) => (chance(0.3) ? pick(NAMES) : text(length).replaceAll("\0", "0"));

// Anything at all, small.
function noise(depth = 2) {
  switch (below(depth ? 8 : 6)) {
    case 0:
      return null;
    case 1:
      return chance(0.5);
    case 2:
      return chance(0.1) ? pick(HUGE) : pick(NUMBERS);
    case 3:
      return below(2000) / 8 - 100;
    case 4:
      return text(below(16));
    case 5:
      return pick(["red", "RED", "Green", "bluE", ""]);
    case 6:
      return Array.from({ length: below(5) }, () => noise(depth - 1));
    default:
      return Object.fromEntries(
        Array.from({ length: below(4) }, () => [key(3), noise(depth - 1)]),
      );
  }
}

// Lengths and counts: mostly within, often at a bound.
function size(min = 0, max = min + 5) {
  return pick([min, max, min + below(max - min + 1)]);
}

function number(schema) {
  const low = schema.minimum ?? (schema.maximum ?? 0) - 50;
  const high = schema.maximum ?? low + 100;
  if (schema.type.includes("integer")) return low + below(high - low + 1);
  return pick([low, high, low + random() * (high - low)]);
}

// A document that the schema allows, but for some strings around the bounds.
function valid(schema) {
  const types = [schema.type].flat();
  if (types.includes("null") && chance(0.2)) return null;
  if (schema.enum) return pick(schema.enum);
  switch (types[0]) {
    case "string":
      return text(chance(0.3) ? below(8) : size((schema.minLength ?? 0) * 2, schema.maxLength));
    case "integer":
    case "number":
      return number(schema);
    case "boolean":
      return chance(0.5);
    case "array":
      return Array.from({ length: size(schema.minItems, schema.maxItems) }, () => valid(schema.items));
    default:
      return schema.properties || schema.additionalProperties === false
        ? members(schema)
        : { any: noise(), [key(2)]: noise() };
  }
}

function members(schema) {
  const names = Object.keys(schema.properties ?? {});
  const kept = names.filter((name) => schema.required?.includes(name) || chance(0.6));
  if (chance(0.3)) kept.reverse();
  return Object.fromEntries(kept.map((name) => [name, valid(schema.properties[name])]));
}

// Changes one place of the document.
function mutate(value) {
  if (typeof value === "object" && value !== null && chance(0.8)) {
    const keys = Object.keys(value);
    const place = pick(keys);
    if (Array.isArray(value)) {
      if (!keys.length || chance(0.2)) value.push(chance(0.5) && keys.length ? value[0] : noise());
      else if (chance(0.15)) value.pop();
      else value[place] = mutate(value[place]);
      return value;
    }
    if (!keys.length || chance(0.1)) value[pick(NAMES)] = noise();
    else if (chance(0.15)) delete value[place];
    else if (chance(0.1)) value[place] = null;
    else value[place] = mutate(value[place]);
    return value;
  }
  if (typeof value === "number" && chance(0.7)) return value + pick([-100, -1, -0.5, 0.5, 1, 100]);
  if (typeof value === "string" && chance(0.7)) {
    const shorter = [...value].slice(1 + below(3)).join("");
    return pick([value.toUpperCase(), value + pick(LETTERS), value + pick(WIDE), shorter]);
  }
  return noise();
}

function generate(schema) {
  if (chance(0.03)) return noise();
  const document = valid(schema);
  const changes = pick([0, 0, 1, 1, 2, 3]);
  return Array.from({ length: changes }).reduce((changed) => mutate(changed), document);
}

// JSON, with numbers spelled in all the ways that mean the same.
function spell(value) {
  if (Array.isArray(value)) return `[${value.map(spell).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    return `{${Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}:${spell(v)}`).join(", ")}}`;
  }
  if (typeof value !== "number") return JSON.stringify(value);
  const plain = Object.is(value, -0) ? "-0" : String(value);
  if (Number.isInteger(value) && Math.abs(value) >= 2 ** 63) return value.toExponential();
  if (!/^-?\d+$/.test(plain)) return plain;
  return pick([plain, plain, plain, `${plain}.0`, `${plain}.0e0`, `${plain}E+0`]);
}

// --- the differences ------------------------------------------------------------------------------

// The document as a client would have sent it that follows the schema to the letter.
function strict(value, schema) {
  if (Array.isArray(value)) return value.map((item) => strict(item, schema.items ?? {}));
  if (typeof value !== "object" || value === null) return value;
  const copy = Object.create(null);
  for (const [name, member] of Object.entries(value)) {
    const rule = Object.hasOwn(schema.properties ?? {}, name) ? schema.properties[name] : undefined;
    const optional = rule && !schema.required?.includes(name);
    const nullable = rule && [rule.type].flat().includes("null");
    if (member === null && optional && !nullable) continue;
    copy[name] = rule ? strict(member, rule) : member;
    if (name === "any_case" && typeof member === "string") {
      copy[name] = rule.enum.find((word) => word === member.toLowerCase()) ?? member;
    }
  }
  return copy;
}

// The value that an error is about, by the path in front of it.
function find(document, error) {
  const path = /^([\w.[\]]*): /.exec(error)?.[1] ?? "";
  return path.match(/\w+/g)?.reduce((value, key) => value?.[key], document);
}

// Does the named value break a rule that JSON Schema cannot say?
function isJustified(document, error) {
  const value = find(document, error);
  if (error.includes("expected a string without NUL bytes")) {
    return typeof value === "string" && value.includes("\0");
  }
  const bytes =
    /expected a string of (?:(\d+) to (\d+)|at most (\d+)|at least (\d+)) bytes?/.exec(error);
  if (bytes && typeof value === "string") {
    const length = Buffer.byteLength(value);
    return length < Number(bytes[1] ?? bytes[4] ?? 0) || length > Number(bytes[2] ?? bytes[3] ?? Infinity);
  }
  return error.includes("expected an integer") && Math.abs(value) >= 2 ** 63;
}

// --- the comparison -------------------------------------------------------------------------------

function run(args, input = "") {
  const done = spawnSync(tool, args, { input, encoding: "utf8", maxBuffer: 1 << 30 });
  if (done.error) throw done.error;
  if (done.status !== 0 || done.stderr) {
    throw new Error(`${tool} ${args.join(" ")}: status ${done.status}, ${done.signal}\n${done.stderr}`);
  }
  return done.stdout.split("\n").slice(0, -1);
}

const ajv = new Ajv({ strict: true, allowUnionTypes: true, validateSchema: true });
ajv.addKeyword("x-mcp-header");
const failures = [];
const tally = {};

function compare(name, schema, validate, line, verdict) {
  const document = JSON.parse(line);
  const allowed = validate(strict(document, schema));
  const fail = (why) => failures.push(`${name}: ${why}\n  document ${line}\n  belljar  ${verdict}`);
  const { ok, error, encoded } = JSON.parse(verdict);
  let kind = ok ? "both accept" : "both refuse";
  if (ok && !allowed) fail(`ajv refuses: ${ajv.errorsText(validate.errors)}`);
  if (!ok && allowed) {
    kind = "only belljar refuses, with reason";
    if (!isJustified(document, error)) fail("ajv accepts");
  }
  if (ok && !validate(encoded)) fail(`encoded is not valid: ${ajv.errorsText(validate.errors)}`);
  tally[name][kind] = (tally[name][kind] ?? 0) + 1;
}

console.log(`seed ${seed}, ${count} documents a shape`);
for (const name of run([])) {
  tally[name] = {};
  const schema = JSON.parse(run([name])[0]);
  const validate = ajv.compile(schema);
  const lines = Array.from({ length: count }, () => spell(generate(schema)));
  const verdicts = run([name], `${lines.join("\n")}\n`).slice(1);
  if (verdicts.length !== count) throw new Error(`${name}: ${verdicts.length} verdicts`);
  lines.forEach((line, i) => compare(name, schema, validate, line, verdicts[i]));
  console.log(`${name}: ${JSON.stringify(tally[name])}`);
}
for (const failure of failures.slice(0, 10)) console.error(failure);
if (failures.length) {
  console.error(`${failures.length} disagreements`);
  process.exit(1);
}
