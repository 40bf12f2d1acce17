-- Which weather delays arrivals?
--
-- Every flight out of New York City in 2013 meets the weather of its airport and hour: a join. A linear
-- regression, written as the matrix formula it is, says what each reading costs in minutes. What the
-- weather leaves unexplained then goes back to SQL, to the carriers.
--
--     cargo run --release -- examples/flights.sql

CREATE VIEW flights AS SELECT * FROM 'examples/data/flights.parquet';
CREATE VIEW weather AS SELECT * FROM 'examples/data/weather.parquet';
CREATE VIEW airlines AS SELECT * FROM 'examples/data/airlines.parquet';

-- 1. The join. One row for each flight that landed and whose hour has a whole weather report; the columns
--    become the columns of a matrix, and the three key columns label its rows. It is a view: nothing is
--    computed or stored yet. The scheduled hour is there because delays pile up over the day, and so does
--    the warmth: without it the thermometer would be blamed for the queue on the runway.
CREATE MATRIX VIEW arrivals = (
    SELECT carrier, flight, time_hour,
           1.0 AS intercept, flights.hour, temp, humid, wind_speed, precip, visib,
           arr_delay
    FROM flights JOIN weather USING (origin, time_hour)
    WHERE arr_delay IS NOT NULL AND temp IS NOT NULL AND humid IS NOT NULL AND wind_speed IS NOT NULL
    ROWS BY carrier, flight, time_hour
);
CREATE MATRIX VIEW x = arrivals[:, 'intercept':'visib'];
CREATE MATRIX VIEW y = arrivals[:, 'arr_delay'];

-- 2. The regression, as the textbook has it. The plan that comes of it makes one pass over the join, never
--    stores x, and solves a 7x7 system instead of inverting one.
EXPLAIN CREATE MATRIX coefficients = inv(t(x) @ x) @ t(x) @ y;

CREATE MATRIX coefficients = inv(t(x) @ x) @ t(x) @ y;

-- 3. How sure are we? The residual variance times the diagonal of inv(t(x) @ x), under the root.
CREATE MATRIX standard_errors =
    sqrt(sum((y - x @ coefficients) ^ 2) / (nrow(x) - ncol(x)) * diag(inv(t(x) @ x)));

-- 4. The answer. Coefficients know their names, because column labels of x became row labels of the
--    result: so a matrix joins like any table. `typical` is what an ordinary swing costs, in minutes: the
--    coefficient times the reading's standard deviation. Of the weather, humid air costs most, then wind,
--    then haze (less visibility, more delay), then rain; warmth least.
CREATE VIEW effects AS
    SELECT b.term, minutes, error, minutes / error AS t_value, minutes * spread AS typical
    FROM MATRIX(coefficients) AS b(term, minutes)
    JOIN MATRIX(standard_errors) AS e(term, error) ON e.term = b.term
    JOIN MATRIX(t(sqrt(col_sums((x - col_means(x)) ^ 2) / (nrow(x) - 1)))) AS s(term, spread)
        ON s.term = b.term;

SELECT term, round(minutes, 4) AS minutes, round(error, 4) AS error, round(t_value, 1) AS t_value, round(typical, 2) AS typical
FROM effects
ORDER BY abs(typical) DESC;

-- 5. Does the weather explain it all? By no means: most of a delay has other causes.
SELECT CAST((MATRIX(nrow(x))) AS BIGINT) AS flights,
       round((MATRIX(1 - sum((y - x @ coefficients) ^ 2) / sum((y - mean(y)) ^ 2))), 4) AS r_squared;

-- 6. Who is late when the weather is not to blame? The residuals carry the labels of their flights.
CREATE VIEW lateness AS
    SELECT name, count(*) AS flights, avg(minutes) AS minutes
    FROM MATRIX(y - x @ coefficients) AS residual(carrier, flight, time_hour, minutes)
    JOIN airlines USING (carrier)
    GROUP BY name;

SELECT name, flights, round(minutes, 2) AS minutes_beyond_weather
FROM lateness
ORDER BY minutes DESC;
