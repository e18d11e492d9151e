-- +goose Up
-- Amounts were in hundredths in every currency. From now on they are in the smallest unit of their currency. Nothing here changes
-- the schema, so the step is one transaction: a step that breaks off has changed no row.
UPDATE sandbox_transactions SET
  amount_cents = CASE WHEN (SELECT COALESCE(payments.currency, orders.currency) FROM payments JOIN orders ON orders.id = order_id WHERE payments.id = payment_id) IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN amount_cents * 10 ELSE amount_cents DIV 100 END
  WHERE (SELECT COALESCE(payments.currency, orders.currency) FROM payments JOIN orders ON orders.id = order_id WHERE payments.id = payment_id) IN (
    'BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'VND', 'VUV', 'XAF', 'XOF', 'XPF',
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND');
UPDATE payments SET
  amount_cents = CASE WHEN COALESCE(currency, (SELECT orders.currency FROM orders WHERE orders.id = order_id)) IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN amount_cents * 10 ELSE amount_cents DIV 100 END
  WHERE COALESCE(currency, (SELECT orders.currency FROM orders WHERE orders.id = order_id)) IN (
    'BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'VND', 'VUV', 'XAF', 'XOF', 'XPF',
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND');
UPDATE orders SET
  amount_cents = CASE WHEN currency IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN amount_cents * 10 ELSE amount_cents DIV 100 END
  WHERE currency IN (
    'BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'VND', 'VUV', 'XAF', 'XOF', 'XPF',
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND');
UPDATE sales SET
  price_cents = CASE WHEN currency IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN price_cents * 10 ELSE price_cents DIV 100 END,
  original_price_cents = CASE WHEN currency IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN original_price_cents * 10 ELSE original_price_cents DIV 100 END
  WHERE currency IN (
    'BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'VND', 'VUV', 'XAF', 'XOF', 'XPF',
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND');

-- +goose Down
UPDATE sandbox_transactions SET
  amount_cents = CASE WHEN (SELECT COALESCE(payments.currency, orders.currency) FROM payments JOIN orders ON orders.id = order_id WHERE payments.id = payment_id) IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN amount_cents DIV 10 ELSE amount_cents * 100 END
  WHERE (SELECT COALESCE(payments.currency, orders.currency) FROM payments JOIN orders ON orders.id = order_id WHERE payments.id = payment_id) IN (
    'BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'VND', 'VUV', 'XAF', 'XOF', 'XPF',
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND');
UPDATE payments SET
  amount_cents = CASE WHEN COALESCE(currency, (SELECT orders.currency FROM orders WHERE orders.id = order_id)) IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN amount_cents DIV 10 ELSE amount_cents * 100 END
  WHERE COALESCE(currency, (SELECT orders.currency FROM orders WHERE orders.id = order_id)) IN (
    'BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'VND', 'VUV', 'XAF', 'XOF', 'XPF',
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND');
UPDATE orders SET
  amount_cents = CASE WHEN currency IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN amount_cents DIV 10 ELSE amount_cents * 100 END
  WHERE currency IN (
    'BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'VND', 'VUV', 'XAF', 'XOF', 'XPF',
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND');
UPDATE sales SET
  price_cents = CASE WHEN currency IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN price_cents DIV 10 ELSE price_cents * 100 END,
  original_price_cents = CASE WHEN currency IN (
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN original_price_cents DIV 10 ELSE original_price_cents * 100 END
  WHERE currency IN (
    'BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'VND', 'VUV', 'XAF', 'XOF', 'XPF',
    'BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND');
