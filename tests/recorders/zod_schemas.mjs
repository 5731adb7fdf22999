// Records schemas that zod writes for random types, by fixed seeds.
//
// npm install zod@4.6.7 in some folder, then there: node zod_schemas.mjs > tests/golden/zod_schemas.json
import * as z from "zod";
function rng(seed) {
  let s = seed >>> 0;
  return () => {
    s = (s + 0x6d2b79f5) >>> 0;
    let t = s;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
const names = [
  "id",
  "name",
  "email",
  "age",
  "tags",
  "kind",
  "createdAt",
  "größe",
  "user_id",
  "a-b",
  "price",
  "is_active",
  "notes",
  "url",
  "x",
];
function make(r, d) {
  const pick = (a) => a[Math.floor(r() * a.length)],
    n = (a, b) => a + Math.floor(r() * (b - a + 1)),
    maybe = (p) => r() < p;
  const shape = () => {
    const o = {};
    if (maybe(0.1)) o.nothing = z.never().optional();
    for (const k of [...names].sort(() => r() - 0.5).slice(0, n(0, 5))) o[k] = make(r, d - 1);
    return o;
  };
  const leaf = [
    () => z.string(),
    () => z.string().min(n(0, 3)).max(n(4, 20)),
    () => z.string().length(n(0, 8)),
    () => z.string().regex(/^[a-z0-9_]+$/),
    () => z.string().startsWith("ab"),
    () => z.string().includes("x.y"),
    () => z.string().endsWith(".com"),
    () => z.string().trim(),
    () => z.string().toLowerCase(),
    () => z.string().nonempty(),
    () => z.email(),
    () => z.uuid(),
    () => z.uuidv4(),
    () => z.url(),
    () => z.emoji(),
    () => z.base64(),
    () => z.base64url(),
    () => z.nanoid(),
    () => z.cuid(),
    () => z.cuid2(),
    () => z.ulid(),
    () => z.ipv4(),
    () => z.ipv6(),
    () => z.cidrv4(),
    () => z.cidrv6(),
    () => z.iso.date(),
    () => z.iso.time(),
    () => z.iso.datetime(),
    () => z.iso.datetime({ offset: true }),
    () => z.iso.duration(),
    () => z.jwt(),
    () => z.e164(),
    () => z.guid(),
    () => z.ksuid(),
    () => z.xid(),
    () => z.hex?.() ?? z.string(),
    () => z.hostname?.() ?? z.string(),
    () => z.number(),
    () => z.int(),
    () => z.number().int(),
    () => z.number().positive(),
    () => z.number().nonnegative(),
    () => z.number().min(n(-9, 9)).max(n(10, 99)),
    () => z.int32(),
    () => z.uint32(),
    () => z.float32(),
    () => z.float64(),
    () => z.number().multipleOf(pick([2, 5, 0.5, 0.25, 0.01, 7])),
    () => z.int().min(1).max(5),
    () => z.number().lt(1).gt(0),
    () => z.number().negative(),
    () => z.number().safe(),
    () => z.boolean(),
    () => z.null(),
    () => z.any(),
    () => z.unknown(),
    () => z.literal(pick(["a", "b c", 1, 2.5, true, null])),
    () => z.literal(["x", "y", 3]),
    () => z.enum(["red", "green", "blue"]),
    () => z.enum({ A: "a", B: "b" }),
    () => z.enum({ A: 1, B: 2 }),
    () => z.templateLiteral(["v", z.number(), "-", z.enum(["a", "b"])]),
    () => z.json(),
    () => z.stringbool(),
  ];
  if (d <= 0 || maybe(0.35)) return pick(leaf)();
  return pick([
    () => z.object(shape()),
    () => z.object(shape()),
    () => z.object(shape()),
    () => z.strictObject(shape()),
    () => z.looseObject(shape()),
    () => z.object(shape()).catchall(make(r, 0)),
    () => z.object(shape()).partial(),
    () => z.array(make(r, d - 1)),
    () =>
      z
        .array(make(r, d - 1))
        .min(1)
        .max(n(1, 4)),
    () => z.array(make(r, d - 1)).length(n(0, 3)),
    () => z.tuple([make(r, d - 1), make(r, d - 1)]),
    () => z.tuple([make(r, d - 1)], make(r, 0)),
    () => (z.set ? z.array(make(r, 0)) : z.array(z.string())),
    () => z.record(z.string(), make(r, d - 1)),
    () => z.record(z.enum(["k1", "k2"]), make(r, d - 1)),
    () => z.partialRecord(z.enum(["k1", "k2"]), make(r, d - 1)),
    () => z.record(z.string().regex(/^[a-z]+$/), make(r, d - 1)),
    () => z.union([make(r, d - 1), make(r, d - 1)]),
    () => z.union([z.string(), z.number()]),
    () =>
      z.discriminatedUnion("type", [
        z.object({ type: z.literal("a"), ...shape() }),
        z.object({ type: z.literal("b"), ...shape() }),
        z.object({ type: z.literal(["c", "d"]), ...shape() }),
      ]),
    () =>
      z.intersection(
        z.looseObject(shape()),
        z.looseObject({ flat_a: make(r, 0), flat_b: make(r, 0).optional() }),
      ),
    () => make(r, d - 1).optional(),
    () => make(r, d - 1).nullable(),
    () => make(r, d - 1).nullish(),
    () => make(r, d - 1).describe("brackets ([{ in text"),
    () => make(r, d - 1).readonly(),
    () => z.string().default("d"),
    () => make(r, d - 1).meta({ title: "T", examples: [1], deprecated: true }),
    () => {
      const T = z.object({
        value: make(r, 0),
        get next() {
          return T.optional();
        },
        get children() {
          return z.array(T);
        },
      });
      return T;
    },
    () => z.object({ a: z.string() }).extend(shape()).omit({ a: true }),
    () => z.string().brand("B"),
    () => z.string().pipe(z.string().min(2)),
    () => z.xor([z.string(), z.number(), z.boolean()]),
    () => z.xor([z.object({ left: make(r, 0) }), z.object({ right: make(r, 0) })]),
    () => z.xor([z.literal("a"), z.string().regex(/^[b-d]+$/)]),
  ])();
}
const found = new Set();
for (let seed = 1; found.size < 500; seed++) {
  const r = rng(seed);
  let type = make(r, 3);
  if (r() < 0.6) type = z.object({ value: type, other: make(r, 1) });
  const target = ["draft-2020-12", "draft-2020-12", "draft-7", "openapi-3.0"][Math.floor(r() * 4)];
  let text;
  try {
    text = JSON.stringify(
      z.toJSONSchema(type, {
        target,
        io: r() < 0.5 ? "input" : "output",
        reused: r() < 0.2 ? "ref" : "inline",
      }),
    );
  } catch {
    continue;
  } // a type without a schema
  // OpenAPI 3.0 has no null: such a schema matches nothing for those who do not know "nullable".
  if (text.length < 1500 && !text.includes('"enum":[null]')) found.add(text);
}
console.log(
  `{"origin": "zod 4.6.7 by tests/recorders/zod_schemas.mjs", "schemas": [\n${[...found].join(",\n")}\n]}`,
);
