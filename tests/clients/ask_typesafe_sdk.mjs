// npm `@typesafe-ai/sdk`, as its documentation uses it.

import { TypeSafeClient, choice, noul, score } from "@typesafe-ai/sdk";
import { run } from "./calls.mjs";

const TYPES = { choice, noul, score };

await run(async ({ url, key, state, questions }) => {
  const client = new TypeSafeClient({ baseURL: url, apiKey: key, retry: { maxRetries: 0 } });
  const typed = Object.entries(questions).map(([name, { type, instructions, criteria }]) => [
    name,
    TYPES[type](instructions, criteria),
  ]);
  return await client.systemOne({ state, questions: Object.fromEntries(typed) });
});
