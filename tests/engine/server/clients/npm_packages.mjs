// The npm packages openai, ai and @ai-sdk/openai-compatible against the server.
//
//     node npm_packages.mjs ADDRESS MODEL     (node_modules beside this file)
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateObject, generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

const [, , address, model] = process.argv;
const ANSWER = "One two three.";
const VALUE = "Paris";
const baseURL = `${address}/v1`;
const messages = [{ role: "user", content: "hello" }];
const plain = { chat_template_kwargs: { enable_thinking: false } };
const schema = jsonSchema({
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
});

async function joined(stream, textOf) {
  let text = "";
  for await (const part of stream) text += textOf(part) ?? "";
  return text;
}

const client = new OpenAI({ baseURL, apiKey: "x" });
const whole = await client.chat.completions.create({ model, messages });
assert.equal(whole.choices[0].message.content, ANSWER);
const stream = await client.chat.completions.create({ model, messages, stream: true });
assert.equal(await joined(stream, (part) => part.choices[0]?.delta?.content), ANSWER);
assert.equal(await client.chat.completions.stream({ model, messages }).finalContent(), ANSWER);
const response = await client.responses.create({ model, input: "hello" });
assert.equal(response.output_text, ANSWER);
assert.equal(
  await joined(
    await client.responses.create({ model, input: "hello", stream: true }),
    (event) => (event.type === "response.output_text.delta" ? event.delta : ""),
  ),
  ANSWER,
);
let asked = "";
const runner = client.chat.completions.runTools({
  model,
  messages,
  ...plain,
  tool_choice: "required",
  parallel_tool_calls: false,
  tools: [
    {
      type: "function",
      function: {
        name: "weather",
        description: "the weather",
        parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
        parse: JSON.parse,
        function: ({ city }) => ((asked = city), "sun"),
      },
    },
  ],
}, { maxChatCompletions: 1 });
await runner.done();
assert.equal(asked, VALUE);
const models = [];
for await (const one of await client.models.list()) models.push(one.id);
assert.ok(models.includes(model));
await assert.rejects(client.chat.completions.create({ model, messages, temperature: -1 }), OpenAI.BadRequestError);

const provider = createOpenAICompatible({
  name: "local",
  baseURL,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const text = await generateText({ model: provider(model), prompt: "hello" });
assert.equal(text.text, ANSWER);
assert.ok(text.reasoningText.includes("I count."));
assert.equal(text.finishReason, "stop");
assert.ok(text.usage.outputTokens > 0);
const streamed = streamText({ model: provider(model), prompt: "hello" });
assert.equal(await joined(streamed.textStream, (part) => part), ANSWER);
assert.equal(await streamed.finishReason, "stop");
assert.ok((await streamed.usage).outputTokens > 0);
const providerOptions = { local: plain };
const made = await generateObject({ model: provider(model), schema, prompt: "a city", providerOptions });
assert.deepEqual(made.object, { city: VALUE });
const weather = tool({
  description: "the weather",
  inputSchema: schema,
  execute: async ({ city }) => `sun in ${city}`,
});
for (const call of [generateText, streamText]) {
  const used = await call({
    model: provider(model),
    tools: { weather },
    toolChoice: "required",
    prompt: "weather?",
    providerOptions,
  });
  const [result] = await used.toolResults;
  assert.equal(result.output, `sun in ${VALUE}`);
}
const vector = await embed({ model: provider.textEmbeddingModel(model), value: "one" });
assert.ok(vector.embedding.length > 0);
