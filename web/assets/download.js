// Files of the API that need a token. They are fetched and not linked to, since a link can't send the token.

import { element } from "./desk.js";
import { read } from "./feed.js";
import { number, say } from "./i18n.js";

// urlLife is how long the URL of a file stays valid, in milliseconds: far longer than until the browser has begun to
// save it.
const urlLife = 60_000;

// save fetches a file in CSV and has the browser save it under a name. The element told shows how much has arrived. save throws a
// Refusal if the file can't be read to its end.
export async function save(path, name, told) {
  const file = [];
  let bytes = 0;
  const size = () => number(Math.ceil(bytes / 1000));
  for await (const part of read(path)) {
    file.push(part);
    bytes += part.length;
    say(told, "csv_size", { size: size() });
  }
  const link = element("a");
  link.href = URL.createObjectURL(new Blob(file, { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), urlLife);
  say(told, "csv_done", { name, size: size() });
}
