// npm `@ai-sdk/typesafe-ai` with `ai`, as its documentation uses them. A noul is a `boolean` here.

import { createTypeSafeAi } from "@ai-sdk/typesafe-ai";
import { experimental_evaluate as evaluate } from "ai";
import { run } from "./calls.mjs";

await run(async ({ url, key, state, questions }) => {
  const provider = createTypeSafeAi({ baseURL: `${url}/v1`, apiKey: key });
  const typed = Object.entries(questions).map(([name, question]) => [
    name,
    question.type === "noul" ? { ...question, type: "boolean" } : question,
  ]);
  const { answers, response } = await evaluate({
    model: provider.evaluationModel("jev-latest"),
    state,
    questions: Object.fromEntries(typed),
    maxRetries: 0,
  });
  return { answers, model: response.modelId };
});
