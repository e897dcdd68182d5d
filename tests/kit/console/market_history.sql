-- Rows of a market of three months. Every tenth node is a verifier. The scale `t` is a thousandth of the jobs.
CREATE FUNCTION pg_temp.pick(n bigint, salt text, choices int) RETURNS int LANGUAGE sql IMMUTABLE AS
  $$ SELECT (abs(hashtext(n || salt)::bigint) % choices)::int $$;
CREATE FUNCTION pg_temp.hash(kind text, n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
  $$ SELECT '0x' || encode(sha256(convert_to(kind || ' ' || n, 'UTF8')), 'hex') $$;
CREATE FUNCTION pg_temp.zone(n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
  $$ SELECT (ARRAY['eu-west', 'us-east', 'ap-south'])[1 + n % 3] $$;
CREATE TEMP TABLE wallet (kind text, n int, address text, PRIMARY KEY (kind, n));
-- rows
INSERT INTO accounts (address, roles) SELECT address, '{}' FROM wallet ON CONFLICT DO NOTHING;

INSERT INTO providers (address, kind, name, region, hardware, environment_class, status, reason, tier_id,
  measured_mflops, last_seen_at, site, asn, owner, round_trip_ms, reliability_bps, created_at)
SELECT address, CASE WHEN n % 10 = 0 THEN 'verifier' ELSE 'provider' END,
  (ARRAY['aurora', 'basalt', 'cirrus', 'delta', 'ember'])[1 + n % 5] || '-' || n, pg_temp.zone(n),
  jsonb_build_object('gpu_model', 'A100 80GB', 'gpu_count', 8, 'gpu_memory_gb', 80, 'ram_gb', 512, 'network_gbps', 200),
  pg_temp.hash('class', n % 3),
  CASE WHEN n <= 2 OR n % 23 > 3 THEN 'active' ELSE (ARRAY['jailed', 'demoted', 'benchmarked', 'registered'])[1 + n % 23] END,
  CASE WHEN n % 23 = 0 THEN 'slashed' END, CASE WHEN n % 10 > 0 THEN 1 + n % 3 END, 61000000,
  :now - make_interval(secs => pg_temp.pick(n, 'seen', 90)), 'site-' || n % 40, 64500 + n % 60, 'owner-' || n % 200,
  5 + pg_temp.pick(n, 'rtt', 120), 8000 + pg_temp.pick(n, 'score', 1990), :now - interval '91 days'
FROM wallet WHERE kind = 'node';

INSERT INTO stakes (address, stake_wei, unbonding_wei)
SELECT address, (1000 + pg_temp.pick(n, 'stake', 4000)) * 1e18, CASE WHEN n % 9 = 0 THEN 50e18 ELSE 0 END
FROM wallet WHERE kind = 'node';

INSERT INTO asks (id, provider, tier_id, gpus, min_price_wei, valid_until, nonce, signature, status)
SELECT pg_temp.hash('ask', n), address, 1 + n % 3, 8, (220 + pg_temp.pick(n, 'ask', 120)) * 1e16,
  :now + interval '1 hour', n, '0x', 'open' FROM wallet WHERE kind = 'node' AND n % 10 > 0 AND n % 4 > 0;

INSERT INTO provider_epochs (epoch, provider, up_minutes, counted_minutes, committed_up_minutes, committed_minutes,
  stake_minutes, served_bytes, replays, verified, rejected, lost, slashes, unreviewed)
SELECT :epoch - day, address, 1440 - pg_temp.pick(n * 100 + day, 'down', 40) * (n + day) % 3, 1440, 0, 0, 1e21,
  pg_temp.pick(n + day, 'served', 1000000) * 1000, CASE WHEN n % 10 = 0 THEN pg_temp.pick(n + day, 'replays', 40) ELSE 0 END,
  CASE WHEN n % 10 > 0 THEN pg_temp.pick(n + day, 'units', 30) ELSE 0 END, 0, CASE WHEN (n + day) % 97 = 0 THEN 1 ELSE 0 END,
  0, false
FROM wallet, generate_series(0, :epochs - 1) day WHERE kind = 'node';

INSERT INTO benchmark_runs (id, provider, seed, work, tier_id, deadline_at, started_at, committed_at, answered_at, passed,
  flops_per_second, created_at)
SELECT left(md5(n || 'run' || run), 36), address, pg_temp.hash('seed', n), '{}', 1 + n % 3, at + interval '1 hour', at,
  at + interval '9 minutes', at + interval '10 minutes', true, 61e12, at
FROM wallet, generate_series(1, 2) run, LATERAL (SELECT :now - make_interval(days => run * 20) AS at) t
WHERE kind = 'node' AND n % 10 > 0;

INSERT INTO auction_rounds (tier_id, zone, number, status, reason, secret, commitment, closes_at, closed_at, cleared_at,
  book, book_hash, owners, rule, price_wei, matches, bid_nodes, ask_nodes, volume_us, waits_ms, created_at)
SELECT tier, pg_temp.zone(z), :rounds - hours, CASE WHEN hours = 0 THEN 'open' ELSE 'cleared' END,
  CASE WHEN hours > 0 THEN 'traded' END, pg_temp.hash('secret' || tier || z, hours),
  pg_temp.hash('commitment' || tier || z, hours), at, CASE WHEN hours > 0 THEN at END, CASE WHEN hours > 0 THEN at END,
  CASE WHEN hours = 1 THEN orders.book ELSE '{}' END, pg_temp.hash('book', hours), '{}',
  CASE WHEN hours > 0 THEN 'sbba' END,
  CASE WHEN hours > 0 THEN (tier * 150 + 100 + pg_temp.pick(hours + z, 'price', 60)) * 1e16 END, '[]',
  CASE WHEN hours > 0 THEN 8 + pg_temp.pick(hours, 'bids', 40) END,
  CASE WHEN hours > 0 THEN 10 + pg_temp.pick(hours, 'asks', 60) END,
  CASE WHEN hours > 0 THEN 36000000000 ELSE 0 END,
  jsonb_build_array(pg_temp.pick(hours, 'wait', 600000), pg_temp.pick(hours, 'wait2', 900000)), at
FROM generate_series(1, 3) tier, generate_series(0, 2) z, generate_series(0, :rounds) hours,
  LATERAL (SELECT :now + interval '5 minutes' - make_interval(hours => hours) AS at) t,
  LATERAL (SELECT jsonb_build_object('environment_class', pg_temp.hash('class', z), 'reserve_price_wei', '2500000000000000000',
    'fee_bps', 500, 'bids', (SELECT jsonb_agg(jsonb_build_object('id', md5('b' || i), 'nodes', 2 + i % 6, 'arrival', i,
      'limit_price_wei', ((420 - i * 9)::numeric * 1e16)::numeric(40, 0)::text)) FROM generate_series(1, 12) i),
    'asks', (SELECT jsonb_agg(jsonb_build_object('id', md5('a' || i), 'arrival', i,
      'min_price_wei', ((240 + i * 5)::numeric * 1e16)::numeric(40, 0)::text)) FROM generate_series(1, 30) i)) AS book) orders;

CREATE TEMP TABLE plan AS SELECT n, pg_temp.hash('job', n) AS id, at,
  CASE WHEN n <= 4 * :t THEN 'matching' WHEN n <= 10 * :t THEN 'running' WHEN n <= 11 * :t THEN 'verifying'
    WHEN n <= 12 * :t THEN 'settling' WHEN n <= 13 * :t THEN 'funded' WHEN n <= 14 * :t THEN 'submitted' ELSE 'settled' END
    AS status,
  CASE WHEN n <= 14 * :t THEN NULL WHEN n % 20 = 0 THEN 'expired' WHEN n % 33 = 0 THEN 'cancelled_by_payer' ELSE 'completed' END
    AS reason,
  CASE WHEN n = 5 * :t + 1 THEN 24 WHEN n <= 20 * :t THEN 3 ELSE 1 END AS done,
  CASE WHEN n = 5 * :t + 1 THEN 8 WHEN n <= 20 * :t THEN 4 ELSE 2 END AS slots
FROM generate_series(1, :jobs) n, LATERAL (SELECT :now - make_interval(secs => n::float / :jobs * 90 * 86400) AS at) t;
ANALYZE plan;

INSERT INTO jobs (id, payer, status, reason, request, spec, spec_hash, spec_cid, tier_id, nodes, rounds, segments,
  sampling_bps, checkpoint_interval, redundancy, requirements, units_ordered, unit_weight_us, budget_wei, max_price_wei,
  wait_until, nonce, order_signature, escrowed_wei, fee_bps, paid_wei, fee_wei, refund_wei, open_tx, settlement_tx,
  clearing_price_wei, environment_class, current_round, round_started_at, funded_at, matched_at, first_step_at, trained_at,
  settled_at, created_at, organisation_id)
SELECT id, payer, status, reason, jsonb_build_object('name',
    (ARRAY['shakespeare', 'chat-adapter', 'code-small', 'legal-de', 'protein'])[1 + n % 5] || '-' || n),
  jsonb_build_object('model_config', jsonb_build_object('architecture', 'llama'), 'training_config',
    jsonb_build_object('inner_steps', 24, 'segment_steps', 6)),
  pg_temp.hash('spec', n), 'bafyspec' || n, 1 + n % 3, slots, greatest(done, 8), 4, 500, 1, 3, '{}', slots * 8, 30000000,
  (2 + pg_temp.pick(n, 'budget', 900)) * 1e17, CASE WHEN n % 7 = 0 THEN 1e18 ELSE 45e17 END, at + interval '6 hours', n, '0x',
  CASE WHEN status = 'submitted' THEN 0 ELSE 1e18 END, 500,
  CASE WHEN status = 'settled' THEN 19e16 END, CASE WHEN status = 'settled' THEN 1e16 END,
  CASE WHEN status = 'settled' THEN 8e17 END, pg_temp.hash('open', n),
  CASE WHEN status = 'settled' THEN pg_temp.hash('settle', n) END,
  CASE WHEN is_matched THEN 26e17 END, CASE WHEN is_matched THEN pg_temp.hash('class', n % 3) END,
  CASE WHEN is_matched THEN done ELSE 0 END, at + interval '20 minutes',
  CASE WHEN status <> 'submitted' THEN at + interval '1 minute' END,
  CASE WHEN is_matched THEN at + make_interval(secs => 120 + pg_temp.pick(n, 'match', 1800)) END,
  CASE WHEN is_matched THEN at + interval '40 minutes' END, CASE WHEN status = 'settled' THEN at + interval '3 hours' END,
  CASE WHEN status = 'settled' THEN at + interval '4 hours' END, at, NULL
FROM plan JOIN (SELECT n AS number, address AS payer FROM wallet WHERE kind = 'payer') payers ON number = plan.n % :payers,
  LATERAL (SELECT status NOT IN ('matching', 'funded', 'submitted') AND reason IS DISTINCT FROM 'expired' AS is_matched) m;

INSERT INTO slots (job_id, slot, provider)
SELECT id, slot, node.address FROM (SELECT plan.id, slot, row_number() OVER (ORDER BY plan.n, slot) AS place
  FROM plan, generate_series(0, slots - 1) slot WHERE status = 'running') s
JOIN (SELECT address, row_number() OVER (ORDER BY n) AS place FROM wallet WHERE kind = 'node' AND n % 10 > 0) node USING (place);

INSERT INTO windows (id, status, root, leaf_count, chain_id_in_contract, seed, commit_tx, committed_at, created_at)
SELECT n, 'decided', pg_temp.hash('root', n), 100, n, pg_temp.hash('wseed', n), pg_temp.hash('wtx', n),
  :now - make_interval(mins => 30 * (:windows - n)), :now FROM generate_series(1, :windows) n;

INSERT INTO settlement_batches (id, root, batch_id, claimable_at, created_at)
SELECT n, pg_temp.hash('batch', n), n, at + interval '1 day', at FROM generate_series(1, 60) n,
  LATERAL (SELECT :now - make_interval(hours => 12 * (60 - n)) AS at) t;

INSERT INTO units (job_id, round, slot, provider, status, reason, start_checkpoint_cid, uploaded_bytes, train_loss, included,
  window_id, sampling_bps, committed_at, uploaded_at, decided_at, settled_at, settlement_id, created_at, slot_state_public,
  to_restore)
SELECT id, round, slot, node.address, status, CASE WHEN status = 'lost' THEN 'node_silent' END, 'bafycheckpoint', 33046,
  (5.5 - ln(2 + round) - slot * 0.001)::numeric(8, 6)::text, status <> 'lost',
  1 + n % :windows, CASE WHEN n % 3 = 0 THEN 2500 ELSE 500 END, at, at, at, CASE WHEN job = 'settled' THEN at END,
  CASE WHEN job = 'settled' AND status = 'verified' THEN 1 + n % 60 END, at, false, false
FROM (SELECT plan.id, plan.n, plan.status AS job, round, slot, plan.at + make_interval(mins => 45 + 4 * round) AS at,
    1 + (plan.n * 7 + slot) % :nodes AS place, CASE WHEN (plan.n + round * 3 + slot) % 41 = 0 THEN 'lost'
      WHEN plan.status = 'running' AND round = done - 1 THEN 'checking' ELSE 'verified' END AS status
  FROM plan, generate_series(0, done - 1) round, generate_series(0, slots - 1) slot
  WHERE plan.status NOT IN ('matching', 'funded', 'submitted') AND reason IS DISTINCT FROM 'expired') u
JOIN (SELECT n AS place, address FROM wallet WHERE kind = 'node') node USING (place);

INSERT INTO checkpoints (job_id, round, cid, model_cid, file_cids, validation_loss, created_at)
SELECT id, round, 'bafyckpt' || n || '-' || round, 'bafymodel' || n || '-' || round, '[]',
  (5.55 - ln(1 + round))::numeric(8, 6)::text, at + make_interval(mins => 46 + 4 * round)
FROM plan, generate_series(0, done) round WHERE n <= 20 * :t AND n > 4 * :t;

INSERT INTO pins (checkpoint_id, provider, nonce, proof)
SELECT checkpoints.id, address, pg_temp.hash('nonce', wallet.n), pg_temp.hash('proof', wallet.n)
FROM checkpoints JOIN wallet ON kind = 'node' AND wallet.n <= 3;

INSERT INTO samples (unit_id, segment, status, canary_due, second_opinion)
SELECT units.id, units.id % 4, CASE WHEN units.status = 'checking' THEN 'revealed' ELSE 'passed' END, false, false
FROM units WHERE units.id % 10 = 0 AND units.status <> 'lost';

INSERT INTO replays (sample_id, verifier, status, result_hash, end_leaf, salt)
SELECT samples.id, address, 'agreed', pg_temp.hash('result', samples.id), pg_temp.hash('leaf', samples.id),
  pg_temp.hash('salt', samples.id)
FROM samples JOIN wallet ON kind = 'node' AND wallet.n = 10 WHERE samples.id % 3 = 0;

INSERT INTO settlement_claims (settlement_id, provider, job_ids, amount_wei, proof, claim_tx)
SELECT DISTINCT batch, node.address, '[]'::jsonb, 1e16::numeric * (1 + batch), '[]'::jsonb,
  CASE WHEN batch < 50 THEN pg_temp.hash('claim', batch) END
FROM generate_series(1, 60) batch JOIN wallet node ON node.kind = 'node' AND (node.n + batch) % 7 = 0 AND node.n % 10 > 0;

INSERT INTO settlement_lines (settlement_id, job_id, status, units, from_round, to_round, last, record_cid)
SELECT 1 + n % 60, id, 'settled', done * slots, 0, done, true, 'bafyrecord' || n FROM plan WHERE status = 'settled';

INSERT INTO audit_events (subject_kind, subject_id, event, from_status, to_status, reason, actor, data, created_at)
SELECT 'job', id, moves.event, moves.before, moves.after, NULL, 'market', '{}', at + make_interval(mins => moves.mins)
FROM plan, (VALUES ('deposit_final', 'submitted', 'funded', 1), ('listed', 'funded', 'matching', 2),
  ('matched', 'matching', 'running', 30), ('rounds_done', 'running', 'verifying', 180),
  ('units_decided', 'verifying', 'settling', 200), ('settlement_final', 'settling', 'settled', 240))
  AS moves(event, before, after, mins)
WHERE status = 'settled' OR (status = 'running' AND moves.mins <= 30) OR (status = 'matching' AND moves.mins <= 2);

INSERT INTO leases (id, kind, holder, status, token, task, job_id, unit_id, step, expires_at)
SELECT left(md5('lease' || slots.provider), 36), 'train', slots.provider, 'active', pg_temp.hash('token', 1), '{}', slots.job_id,
  NULL, 7, :now + interval '10 minutes' FROM slots WHERE slots.provider IS NOT NULL LIMIT 4;
