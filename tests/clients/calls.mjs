// What the programs of the JavaScript clients share; see calls.py.

import { json } from "node:stream/consumers";

/** Makes every call; `ask` gives an object with `answers` and `model`. */
export async function run(ask) {
  const outcomes = {};
  for (const [name, call] of Object.entries(await json(process.stdin))) {
    outcomes[name] = await ask(call).catch(({ name, constructor, status, statusCode, message }) => ({
      error: name === "Error" ? constructor.name : name,
      status: status ?? statusCode,
      message,
    }));
  }
  console.log(JSON.stringify(outcomes));
}
