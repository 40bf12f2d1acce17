-- Queries over the data of examples/.

-- name: weather of flights
select 1 from flights, weather where flights.origin = weather.origin and flights.time_hour = weather.time_hour;

-- name: arrivals
select 1 from flights join weather using (origin, time_hour)
where arr_delay is not null and temp is not null and humid is not null and wind_speed is not null;

-- name: flights of an airline
select 1 from flights, airlines where flights.carrier = airlines.carrier and name = 'SkyWest Airlines Inc.';

-- name: a common carrier
select 1 from flights where carrier = 'UA' and origin = 'EWR';

-- name: a rare carrier
select 1 from flights where carrier = 'OO';

-- name: late in summer
select 1 from flights where month between 6 and 8 and arr_delay > 60;

-- name: early
select 1 from flights where dep_delay < -10;

-- name: cancelled
select 1 from flights where dep_time is null;

-- name: two flights of a plane
select 1 from flights as one, flights as other
where one.tailnum = other.tailnum and one.month = 1 and one.day = 1 and other.month = 1 and other.day = 2;

-- name: rain
select 1 from weather where precip > 0.1;

-- name: rain at a flight
select 1 from flights, weather
where flights.origin = weather.origin and flights.time_hour = weather.time_hour and precip > 0.1;

-- name: needed by all
select 1 from dependencies where depends_on = 'libc6';

-- name: recommended
select 1 from dependencies where kind = 'recommends';

-- name: sections that need
select 1 from dependencies, packages where dependencies.package = packages.package and section = 'games';

-- name: sections that are needed
select 1 from dependencies, packages where depends_on = packages.package and section = 'libs';

-- name: two steps
select 1 from dependencies as one, dependencies as other
where one.depends_on = other.package and one.kind = 'depends' and other.kind = 'depends';

-- name: large packages
select 1 from packages where installed_size_kib > 100000;

-- name: small packages that are needed
select 1 from packages where installed_size_kib < 20
and exists (select 1 from dependencies where depends_on = packages.package);

-- name: one digit
select 1 from digits where digit = 3;

-- name: libraries
select 1 from packages where package like 'lib%';

-- name: documentation
select 1 from packages where package like '%-doc';

-- name: libraries that are needed
select 1 from dependencies, packages where depends_on = packages.package and packages.package ~ '^lib.*[0-9]$';

-- name: before noon
select 1 from flights where sched_dep_time / 100 < 12 and substr(dest, 1, 1) = 'S';

-- name: weekends
select 1 from weather where extract(dow from time_hour) in (0, 6);
