// A crowd comes to one sale. Each iteration is a buyer who reads the sale, asks for the hidden path, buys a unit, follows
// the order while it is queued, pays it in the sandbox and reads it.
//
//   flashsale tokens --users 5000 > tokens.csv
//   k6 run -e SALE=http://127.0.0.1:8080/sales/E4OFUH3WQZGZCWAR -e TOKENS=$PWD/tokens.csv test/load/k6/rush.js
//
// SALE     the address of the sale's page
// TOKENS   the buyers, with an absolute path: k6 takes others from this file's folder
// LOAD     rush: within a second from nobody to RATE, for SECONDS; constant: RATE all the time. Default: rush
// RATE     buyers a second; 100
// SECONDS  30
// VUS      most buyers on their way at once; 500
// P99      the slowest hundredth of purchases may take this many milliseconds or longer; 1000
// SUMMARY  a file for the figures as JSON
import { check, sleep } from 'k6';
import { SharedArray } from 'k6/data';
import exec from 'k6/execution';
import http from 'k6/http';
import { Counter } from 'k6/metrics';

const page = /^(https?:\/\/[^/]+)\/sales\/([^/]+)$/.exec(__ENV.SALE);
if (!page || !__ENV.TOKENS) {
  throw new Error("SALE has to be the address of a sale's page, and TOKENS a file of tokens");
}
const sale = `${page[1]}/api/v1/sales/${page[2]}`;
const orders = `${page[1]}/api/v1/orders`;

const buyers = new SharedArray('buyers', () =>
  open(__ENV.TOKENS).trim().split('\n').slice(1).map((line) => {
    const [user, token] = line.trim().split(',');
    return { user, token };
  }),
);

// followSeconds is how long an attempt may be queued: the engine promises an end within ten seconds of a fault.
const followSeconds = 10;
const lookEvery = 0.25; // seconds

const rate = Number(__ENV.RATE || 100);
const seconds = Number(__ENV.SECONDS || 30);
const vus = Number(__ENV.VUS || 500);
const loads = {
  rush: {
    executor: 'ramping-arrival-rate',
    startRate: 0,
    stages: [{ target: rate, duration: '1s' }, { target: rate, duration: `${seconds}s` }],
  },
  constant: { executor: 'constant-arrival-rate', rate, duration: `${seconds}s` },
};
const load = loads[__ENV.LOAD || 'rush'];
if (!load) {
  throw new Error('LOAD has to be rush or constant');
}

export const options = {
  scenarios: { sale: { ...load, timeUnit: '1s', preAllocatedVUs: vus, gracefulStop: '30s' } },
  thresholds: {
    checks: ['rate==1'],
    http_req_failed: ['rate==0'],
    'http_req_duration{name:buy}': [`p(99)<${__ENV.P99 || 1000}`],
  },
  summaryTrendStats: ['med', 'p(95)', 'p(99)', 'max'],
};

// A refusal for want of units, or at the buyer's limit, is an answer like any other.
const refusals = ['sold_out', 'limit_reached'];
http.setResponseCallback(http.expectedStatuses({ min: 200, max: 299 }, 409));

const counts = {};
for (const name of ['confirmed', 'queued', 'paid', ...refusals]) {
  counts[name] = new Counter(name);
}

// The keys of a run are its own: under those of the run before, buyers would get the orders they had then.
export function setup() {
  return Date.now().toString(36);
}

export default function (run) {
  const iteration = exec.scenario.iterationInTest;
  const { user, token } = buyers[iteration % buyers.length];
  const as = (name, headers) => ({ tags: { name }, headers: { Authorization: `Bearer ${token}`, ...headers } });

  let res = http.get(sale, { tags: { name: 'sale' } });
  if (!check(res, { 'sale: 200': (r) => r.status === 200 })) return;

  res = http.post(`${sale}/path`, null, as('path'));
  if (!check(res, { 'path: 200, 32 hex digits': (r) => r.status === 200 && /^[0-9a-f]{32}$/.test(r.json('path')) })) return;

  const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': `${run}-${iteration}-${user}` };
  res = http.post(`${sale}/${res.json('path')}/orders`, JSON.stringify({ quantity: 1 }), as('buy', headers));
  if (!check(res, { 'buy: 201, 202, or 409 for want of units': (r) => [201, 202].includes(r.status) || refused(r, 'code') })) return;
  if (res.status === 409) {
    counts[res.json('code')].add(1);
    return;
  }
  counts[res.status === 201 ? 'confirmed' : 'queued'].add(1);

  const order = `${orders}/${res.json('id')}`;
  for (let waited = 0; res.json('status') === 'queued' && waited < followSeconds; waited += lookEvery) {
    sleep(lookEvery);
    res = http.get(order, as('follow'));
    if (!check(res, { 'follow: 200': (r) => r.status === 200 })) return;
  }
  if (!check(res, { 'order: pending, or rejected for want of units': (r) => r.json('status') === 'pending' || refused(r, 'reason') })) return;
  if (res.json('status') === 'rejected') {
    counts[res.json('reason')].add(1);
    return;
  }

  res = http.post(`${order}/payments`, null, as('payment'));
  if (!check(res, { 'payment: 201': (r) => r.status === 201 })) return;
  res = http.post(res.json('pay_url'), { choice: 'pay' }, { tags: { name: 'sandbox' } });
  if (!check(res, { 'sandbox: 200': (r) => r.status === 200 })) return;
  res = http.get(order, as('order'));
  if (check(res, { 'order: paid': (r) => r.status === 200 && r.json('status') === 'paid' })) counts.paid.add(1);
}

// refused says that an answer is a refusal that a rush must bring.
function refused(res, member) {
  return [200, 409].includes(res.status) && refusals.includes(res.json(member));
}

export function handleSummary({ metrics, root_group: { checks } }) {
  const total = (name) => (metrics[name] ? metrics[name].values.count : 0);
  const buy = metrics['http_req_duration{name:buy}'].values;
  const lines = [
    `${total('iterations')} buyers, ${total('dropped_iterations')} more did not come because VUS was too low or this machine too slow`,
    ...Object.keys(counts).map((name) => `${name}: ${total(name)}`),
    `a purchase took ${buy.med.toFixed(1)} ms in the middle, p99 ${buy['p(99)'].toFixed(1)} ms, at most ${buy.max.toFixed(1)} ms`,
    ...checks.map(({ name, passes, fails }) => `${fails ? 'FAILED' : 'ok'} ${name}: ${passes} right, ${fails} wrong`),
  ];
  const out = { stdout: `\n${lines.join('\n')}\n` };
  if (__ENV.SUMMARY) out[__ENV.SUMMARY] = JSON.stringify(metrics, null, 2);
  return out;
}
