// Evaluates JSONata with the reference implementation: one request as a line of JSON on stdin, one answer on stdout.
import { createInterface } from "node:readline";
import jsonata from "jsonata";

const compiled = new Map();

function compile(expression) {
  if (!compiled.has(expression)) compiled.set(expression, jsonata(expression));
  return compiled.get(expression);
}

// Step Functions ends an evaluation that nests more than about a hundred levels deep. How it counts the parts of an
// array or an object, which are evaluated at once, is not known; the higher count is given.
function depthMeter(expression) {
  const depths = { nested: 0, parallel: 0 };
  let most = 0;
  const step = (change) => (_, __, environment) => {
    depths.parallel += change;
    if (!environment.isParallelCall) depths.nested += change;
    most = Math.max(most, depths.nested, depths.parallel);
  };
  expression.assign(Symbol.for("jsonata.__evaluate_entry"), step(1));
  expression.assign(Symbol.for("jsonata.__evaluate_exit"), step(-1));
  return () => most;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { expression, bindings, isMetered } = JSON.parse(line);
  let answer;
  try {
    const code = isMetered ? jsonata(expression) : compile(expression);
    const depth = isMetered ? depthMeter(code) : () => null;
    const value = await code.evaluate(undefined, bindings);
    answer = { value: value === undefined ? null : value, depth: depth() };
  } catch (error) {
    answer = { error: `${error.code ?? error.name}: ${error.message}` };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
