#!/bin/sh
rootmnt=$NEWROOT /usr/bin/volumes
