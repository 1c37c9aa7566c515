// Events by way of the npm SDK. Prints what came back as JSON; the test beside this file judges it.
"use strict";

const Cloudflare = require("cloudflare");

const POLLS_MAX = 200;
const POLL_MS = 50;

async function pulled(messages, queue_id, account_id) {
  for (let poll = 0; poll < POLLS_MAX; poll++) {
    const answer = await messages.pull(queue_id, { account_id });
    if (answer.messages.length) {
      const acks = answer.messages.map(({ lease_id }) => ({ lease_id }));
      await messages.ack(queue_id, { account_id, acks });
      return answer.messages.map(({ body }) => JSON.parse(body));
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
  throw new Error("no message came");
}

async function main(account_id, queue_name, events_url, token) {
  const { queues } = new Cloudflare(); // the URL and the token come from its own variables
  const { messages, subscriptions } = queues;
  const seen = {};

  const { queue_id } = await queues.create({ account_id, queue_name });
  await queues.consumers.create(queue_id, { account_id, type: "http_pull" });
  const destination = { type: "queues.queue", queue_id };
  const build = { type: "workersBuilds.worker", worker_name: queue_name };
  const events = ["build.failed"];
  const made = await subscriptions.create({ account_id, source: build, destination, events });
  seen.subscription = made.id;

  const answer = await fetch(events_url, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ source: build, event: "build.failed", payload: { buildUuid: "b-1" } }),
  });
  seen.sent = await answer.json();
  seen.outside = await pulled(messages, queue_id, account_id);

  const own = { type: "courier.message" };
  await subscriptions.create({ account_id, source: own, destination, events: ["buried"] });
  seen.listed = [];
  for await (const one of subscriptions.list({ account_id })) {
    if (one.destination.queue_id === queue_id) seen.listed.push(one.source.type);
  }

  const failing = await queues.create({ account_id, queue_name: `${queue_name}-failing` });
  await queues.consumers.create(failing.queue_id, {
    account_id,
    type: "http_pull",
    settings: { max_retries: 0 },
  });
  await messages.push(failing.queue_id, { account_id, body: "x", content_type: "text" });
  const { messages: taken } = await messages.pull(failing.queue_id, { account_id });
  const retries = taken.map(({ lease_id }) => ({ lease_id }));
  await messages.ack(failing.queue_id, { account_id, retries });
  while (!seen.own) {
    // Messages of other tests may be buried meanwhile.
    const told = await pulled(messages, queue_id, account_id);
    seen.own = told.find((event) => event.payload.messageId === taken[0].id);
  }
  console.log(JSON.stringify(seen));
}

main(...process.argv.slice(2));
