// A worker in JavaScript, with nothing but Node: run
//
//     SECRET=$(courier worker add mill http://127.0.0.1:8788/) PORT=8788 node worker_javascript.mjs

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const KEY = Buffer.from(process.env.SECRET.replace(/^whsec_/, ""), "base64");
const AGE_SECONDS_MAX = 300;

// Your work. What throws is sent again.
async function handle(queue, message) {
  console.log(queue, message.id, message.body);
  if (message.body === "fail") throw new Error("as you wish");
}

// Is this from Courier, unchanged, and not an old batch sent again?
function verified(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": at, "webhook-signature": signatures } = headers;
  if (!id || !signatures || !(Math.abs(Date.now() / 1000 - at) < AGE_SECONDS_MAX)) return false;
  const wanted = createHmac("sha256", KEY).update(`${id}.${at}.`).update(body).digest();
  return signatures.split(" ").some((signature) => {
    const given = Buffer.from(signature.replace(/^v1,/, ""), "base64");
    return given.length === wanted.length && timingSafeEqual(given, wanted);
  });
}

createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  if (!verified(request.headers, body)) return response.writeHead(401).end();
  const { queue, messages } = JSON.parse(body);
  const retries = [];
  for (const message of messages) {
    try {
      await handle(queue, message);
    } catch (error) {
      console.log(`${message.id}: ${error.message}`);
      retries.push({ id: message.id, delay_seconds: 1 });
    }
  }
  response.end(JSON.stringify({ retries }));
}).listen(process.env.PORT, "127.0.0.1");
